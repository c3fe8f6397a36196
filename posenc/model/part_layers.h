// The rotary embedding of each type of a part's layers.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "posenc/model/model.h"
#include "posenc/model/part.h"

namespace posenc {

// Entries like `common`, which holds the index of every layer, as far as the file says how many there are.
absl::StatusOr<std::vector<ModelLayers>> RotaryLayersOf(const Part& part, const ModelLayers& common);

}  // namespace posenc
