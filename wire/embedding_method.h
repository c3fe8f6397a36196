// The messages of absolute encodings.
#pragma once

#include "posenc/spec.h"
#include "posenc/v1/service.pb.h"
#include "wire/read.h"
#include "wire/weighted_model.h"

namespace posenc::wire {

absl::StatusOr<OfModel<EmbeddingMethod>> ResolveEmbedding(const Reader& reader,
                                                          const v1::GenerateEmbeddingRequest& request);

// What a config.json can say of the method; false where it can say nothing.
bool WriteEmbeddingPlan(const EmbeddingMethod& method, v1::Plan* plan);

}  // namespace posenc::wire
