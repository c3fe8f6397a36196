// The message Sinusoidal, alone and with a model's config.json.
#pragma once

#include "posenc/mapping/read.h"
#include "posenc/mapping/weighted_model.h"
#include "posenc/settings/settings.h"
#include "posenc/v1/embedding.pb.h"

namespace posenc::wire {

// Errors name the field within the message.
absl::StatusOr<OfModel<SinusoidalSettings>> ResolveSinusoidal(const Reader& reader, const v1::Sinusoidal& message);
void WriteSinusoidal(const SinusoidalSettings& settings, v1::Sinusoidal* message);

// BOOL [B, S].
absl::StatusOr<Matrix<uint8_t>> ReadTokenValid(const Reader& reader, const v1::Tensor& tensor);

}  // namespace posenc::wire
