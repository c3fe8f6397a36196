// The buckets of a T5's part.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/model/part.h"

namespace posenc {

// The part's name says which: both stacks share one file, which has one set of buckets for them.
absl::StatusOr<T5Settings> T5Of(Part& part);

}  // namespace posenc
