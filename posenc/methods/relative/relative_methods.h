// The terms with content, a file each. relative.h is what the rest of the library asks of any of them.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/base/work_pool.h"
#include "posenc/methods/relative/relative_tables.h"

namespace posenc {

// Relative position representations (Shaw et al., arXiv:1803.02155), and BERT's relative_key in transformers.

absl::Status Complete(ShawSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const ShawSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const ShawSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

// The table's row of each distance.
std::vector<int32_t> ShawRows(const ShawSettings& settings, const Distances& distances);

// Transformer-XL's relative term (arXiv:1901.02860), as XLNet has it too.

absl::Status Complete(TransformerXlSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const TransformerXlSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const TransformerXlSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

// TUPE's untied positional term (arXiv:2006.15595).

absl::Status Complete(TupeSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const TupeSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const TupeSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

// DeBERTa's disentangled attention (arXiv:2006.03654): content to position and position to content, v1 to v3.

absl::Status Complete(DebertaSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const DebertaSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const DebertaSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

// Wavelet positional representation (arXiv:2502.02004): the distance through wavelets of several scales and shifts.

absl::Status Complete(WprSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const WprSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const WprSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

// Contextual position encoding (arXiv:2405.18719): positions are counted by gates that the content opens.

absl::Status Complete(CopeSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const CopeSettings& settings, const RelativeShape& shape, const Limits& limits);
// E, as a table of q without rows by distance.
absl::StatusOr<RelativeTables> MakeTables(const CopeSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

// One query's row. gates: its scaled products with the keys, -infinity where a key is hidden, on return its positions.
// products: q . E_n at products[n * stride]. Adds to sums.
void AddCopeRow(std::vector<double>& gates, const double* products, size_t stride, int64_t positions, double* sums);

}  // namespace posenc
