// The messages of absolute encodings.
#pragma once

#include "posenc/mapping/read.h"
#include "posenc/mapping/weighted_model.h"
#include "posenc/settings/settings.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

absl::StatusOr<OfModel<EmbeddingMethod>> ResolveEmbedding(const Reader& reader,
                                                          const v1::GenerateEmbeddingRequest& request);

// What a config.json can say of the method; false where it can say nothing.
bool WriteEmbeddingPlan(const EmbeddingMethod& method, v1::Plan* plan);

}  // namespace posenc::wire
