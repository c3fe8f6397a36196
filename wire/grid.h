// The message Grid, alone and with a model's config.json.
#pragma once

#include <optional>
#include <vector>

#include "posenc/spec.h"
#include "posenc/v1/embedding.pb.h"
#include "wire/read.h"

namespace posenc::wire {

struct ResolvedGrid {
  GridSettings settings;
  std::optional<Precision> of_model;  // the class's own, where a config.json is given
  std::vector<Note> notes;
};

// Errors name the field within the message.
absl::StatusOr<ResolvedGrid> ResolveGrid(const Reader& reader, const v1::Grid& message);
void WriteGrid(const GridSettings& settings, v1::Grid* message);

}  // namespace posenc::wire
