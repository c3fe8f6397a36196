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

absl::StatusOr<ResolvedEmbedding> ReadEmbeddingMethod(const Reader& reader,
                                                      const v1::GenerateEmbeddingRequest& request);
absl::StatusOr<SinusoidalSettings> ReadSinusoidal(const Reader& reader, const v1::Sinusoidal& message);

}  // namespace posenc::wire
