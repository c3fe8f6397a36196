// Relative position representations (Shaw et al., arXiv:1803.02155), and BERT's relative_key in transformers.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/base/work_pool.h"
#include "posenc/methods/relative/relative_tables.h"

namespace posenc {

absl::Status Complete(ShawSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const ShawSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const ShawSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

// The table's row of each distance.
std::vector<int32_t> ShawRows(const ShawSettings& settings, const Distances& distances);

}  // namespace posenc
