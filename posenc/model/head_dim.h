// The width of a part's heads.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "posenc/model/part.h"

namespace posenc {

absl::StatusOr<int64_t> HeadDimOf(const Part& part);

}  // namespace posenc
