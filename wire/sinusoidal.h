// The message Sinusoidal, alone and with a model's config.json.
#pragma once

#include <optional>
#include <vector>

#include "posenc/spec.h"
#include "posenc/v1/embedding.pb.h"
#include "wire/read.h"

namespace posenc::wire {

struct ResolvedSinusoidal {
  SinusoidalSettings settings;
  std::optional<Precision> of_model;  // the class's own, where a config.json is given
  std::vector<Note> notes;
};

// Errors name the field within the message.
absl::StatusOr<ResolvedSinusoidal> ResolveSinusoidal(const Reader& reader, const v1::Sinusoidal& message);
void WriteSinusoidal(const SinusoidalSettings& settings, v1::Sinusoidal* message);

// BOOL [B, S].
absl::StatusOr<Matrix<uint8_t>> ReadTokenValid(const Reader& reader, const v1::Tensor& tensor);

}  // namespace posenc::wire
