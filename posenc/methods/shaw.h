// Relative position representations (Shaw et al., arXiv:1803.02155), and BERT's relative_key in transformers.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "posenc/kernels/sincos_rows.h"
#include "posenc/limits.h"
#include "posenc/methods/relative_tables.h"
#include "posenc/work_pool.h"

namespace posenc {

absl::Status Complete(ShawSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const ShawSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const ShawSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

// The table's row of each distance.
std::vector<int32_t> ShawRows(const ShawSettings& settings, const Distances& distances);

}  // namespace posenc
