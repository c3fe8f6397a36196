// TUPE's untied positional term (arXiv:2006.15595).
#pragma once

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/base/work_pool.h"
#include "posenc/methods/relative/relative_tables.h"

namespace posenc {

absl::Status Complete(TupeSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const TupeSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const TupeSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

}  // namespace posenc
