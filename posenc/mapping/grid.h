// The message Grid, alone and with a model's config.json.
#pragma once

#include "posenc/mapping/read.h"
#include "posenc/mapping/weighted_model.h"
#include "posenc/settings/settings.h"
#include "posenc/v1/embedding.pb.h"

namespace posenc::wire {

// Errors name the field within the message.
absl::StatusOr<OfModel<GridSettings>> ResolveGrid(const Reader& reader, const v1::Grid& message);
void WriteGrid(const GridSettings& settings, v1::Grid* message);

}  // namespace posenc::wire
