// Contextual position encoding (arXiv:2405.18719): positions are counted by gates that the content opens.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/base/work_pool.h"
#include "posenc/methods/relative/relative_tables.h"

namespace posenc {

absl::Status Complete(CopeSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const CopeSettings& settings, const RelativeShape& shape, const Limits& limits);
// E, as a table of q without rows by distance.
absl::StatusOr<RelativeTables> MakeTables(const CopeSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

// One query's row. gates: its scaled products with the keys, -infinity where a key is hidden, on return its positions.
// products: q . E_n at products[n * stride]. Adds to sums.
void AddCopeRow(std::vector<double>& gates, const double* products, size_t stride, int64_t positions, double* sums);

}  // namespace posenc
