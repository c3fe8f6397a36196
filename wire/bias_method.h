// The message of a bias method, but for a config.json: from it to settings and back.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/spec.h"
#include "posenc/v1/bias.pb.h"
#include "wire/read.h"

namespace posenc::wire {

// Errors name the field within the message. A method that is missing, or a model, leaves the settings empty.
absl::StatusOr<BiasMethod> ReadBiasMethod(const Reader& reader, const v1::BiasMethod& message);

// Canonical settings: sent back, they give the same bytes.
void WriteBiasMethod(const BiasMethod& method, v1::BiasMethod* message);

}  // namespace posenc::wire
