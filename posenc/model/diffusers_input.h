// What a diffusers class adds to its input: sines of a grid's cells or of frames, or a learned table.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/model/config_json.h"
#include "posenc/model/diffusers_types.h"
#include "posenc/model/model.h"
#include "posenc/settings/settings.h"

namespace posenc {

// INVALID_ARGUMENT naming a field that is missing, of the wrong type or out of range, or that says there are none.
absl::StatusOr<GridSettings> DiffusersGridOf(const ConfigObject& config, const DiffusersGrid& grid);
absl::StatusOr<SinusoidalSettings> DiffusersSinesOf(const ConfigObject& config, const DiffusersSines& sines);
absl::StatusOr<ModelTable> DiffusersTableOf(const ConfigObject& config, const DiffusersTable& table);

}  // namespace posenc
