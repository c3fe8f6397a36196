// TUPE's untied positional term (arXiv:2006.15595).
#pragma once

#include "absl/status/statusor.h"
#include "posenc/kernels/sincos_rows.h"
#include "posenc/limits.h"
#include "posenc/methods/relative_tables.h"
#include "posenc/work_pool.h"

namespace posenc {

absl::Status Complete(TupeSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const TupeSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const TupeSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

}  // namespace posenc
