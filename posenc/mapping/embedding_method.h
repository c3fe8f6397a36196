// Converts the messages of absolute positional encodings to settings and back.
#pragma once

#include "posenc/mapping/read.h"
#include "posenc/mapping/weighted_model.h"
#include "posenc/settings/settings.h"
#include "posenc/v1/embedding.pb.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

absl::StatusOr<OfModel<EmbeddingMethod>> ResolveEmbedding(const Reader& reader,
                                                          const v1::GenerateEmbeddingRequest& request);

// Errors name the field within the message.
absl::StatusOr<OfModel<SinusoidalSettings>> ResolveSinusoidal(const Reader& reader, const v1::Sinusoidal& message);

// Writes the settings that a config.json can give. Returns false if it can give none for this method.
bool WriteEmbeddingPlan(const EmbeddingMethod& method, v1::Plan* plan);

}  // namespace posenc::wire
