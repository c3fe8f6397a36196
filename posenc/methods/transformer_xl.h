// Transformer-XL's relative term (arXiv:1901.02860), as XLNet has it too.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/kernels/sincos_rows.h"
#include "posenc/limits.h"
#include "posenc/methods/relative_tables.h"
#include "posenc/work_pool.h"

namespace posenc {

absl::Status Complete(TransformerXlSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const TransformerXlSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const TransformerXlSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

}  // namespace posenc
