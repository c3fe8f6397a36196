// Wavelet positional representation (arXiv:2502.02004): the distance through wavelets of several scales and shifts.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/base/work_pool.h"
#include "posenc/methods/relative/relative_tables.h"

namespace posenc {

absl::Status Complete(WprSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const WprSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const WprSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

}  // namespace posenc
