// The messages of absolute encodings.
#pragma once

#include <optional>
#include <vector>

#include "posenc/spec.h"
#include "posenc/v1/service.pb.h"
#include "wire/read.h"

namespace posenc::wire {

struct ResolvedEmbedding {
  EmbeddingMethod method;
  std::optional<Precision> of_model;  // the class's own, where a config.json is given
  std::vector<Note> notes;
};

absl::StatusOr<ResolvedEmbedding> ResolveEmbedding(const Reader& reader, const v1::GenerateEmbeddingRequest& request);

// What a config.json can say of the method; false where it can say nothing.
bool WriteEmbeddingPlan(const EmbeddingMethod& method, v1::Plan* plan);

}  // namespace posenc::wire
