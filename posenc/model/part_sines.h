// The sines and cosines of positions that a part adds to its input.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/model/model.h"
#include "posenc/model/part.h"

namespace posenc {

absl::StatusOr<SinusoidalSettings> SinusoidalOf(Part& part);

// Height and width are 0 where the model takes images of any size.
absl::StatusOr<GridSettings> GridOf(Part& part);

}  // namespace posenc
