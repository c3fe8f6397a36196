// The rotary embedding of a diffusers class.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/model/config_json.h"
#include "posenc/model/diffusers_types.h"
#include "posenc/settings/settings.h"

namespace posenc {

// INVALID_ARGUMENT naming a field that is missing, of the wrong type or out of range.
absl::StatusOr<RotarySettings> DiffusersRotaryOf(const ConfigObject& config, const DiffusersRotary& rotary,
                                                 const Limits& limits);

}  // namespace posenc
