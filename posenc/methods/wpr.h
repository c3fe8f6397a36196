// Wavelet positional representation (arXiv:2502.02004): the distance through wavelets of several scales and shifts.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/kernels/sincos_rows.h"
#include "posenc/limits.h"
#include "posenc/methods/relative_tables.h"
#include "posenc/work_pool.h"

namespace posenc {

absl::Status Complete(WprSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const WprSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const WprSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

}  // namespace posenc
