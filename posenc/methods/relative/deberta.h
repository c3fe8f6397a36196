// DeBERTa's disentangled attention (arXiv:2006.03654): content to position and position to content, v1 to v3.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/base/work_pool.h"
#include "posenc/methods/relative/relative_tables.h"

namespace posenc {

absl::Status Complete(DebertaSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const DebertaSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const DebertaSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

}  // namespace posenc
