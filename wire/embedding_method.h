// The messages of absolute encodings.
#pragma once

#include "posenc/spec.h"
#include "posenc/v1/service.pb.h"
#include "wire/read.h"

namespace posenc::wire {

absl::StatusOr<EmbeddingMethod> ReadEmbeddingMethod(const Reader& reader, const v1::GenerateEmbeddingRequest& request);
absl::StatusOr<SinusoidalSettings> ReadSinusoidal(const Reader& reader, const v1::Sinusoidal& message);

}  // namespace posenc::wire
