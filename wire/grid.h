// The message Grid, alone and with a model's config.json.
#pragma once

#include "posenc/spec.h"
#include "posenc/v1/embedding.pb.h"
#include "wire/read.h"
#include "wire/weighted_model.h"

namespace posenc::wire {

// Errors name the field within the message.
absl::StatusOr<OfModel<GridSettings>> ResolveGrid(const Reader& reader, const v1::Grid& message);
void WriteGrid(const GridSettings& settings, v1::Grid* message);

}  // namespace posenc::wire
