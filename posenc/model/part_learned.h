// The learned table of a part's positions, which comes with the request.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/model/model.h"
#include "posenc/model/part.h"

namespace posenc {

// INVALID_ARGUMENT, UNSUPPORTED, where the file says that positions are none of the input.
absl::StatusOr<ModelTable> LearnedOf(Part& part);

}  // namespace posenc
