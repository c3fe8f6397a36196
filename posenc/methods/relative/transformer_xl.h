// Transformer-XL's relative term (arXiv:1901.02860), as XLNet has it too.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/base/work_pool.h"
#include "posenc/methods/relative/relative_tables.h"

namespace posenc {

absl::Status Complete(TransformerXlSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const TransformerXlSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const TransformerXlSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

}  // namespace posenc
