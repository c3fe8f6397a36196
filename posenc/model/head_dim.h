// The number and the width of a part's heads.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "posenc/model/part.h"

namespace posenc {

// None where the file does not say.
absl::StatusOr<std::optional<int64_t>> HeadsOf(const Part& part);
absl::StatusOr<int64_t> HeadDimOf(const Part& part);

}  // namespace posenc
