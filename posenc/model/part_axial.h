// The rotary settings of a vision part, whose positions have an axis for rows and one for columns.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/model/part.h"

namespace posenc {

absl::StatusOr<RotarySettings> AxialOf(Part& part);

}  // namespace posenc
