// Methods of relative terms, one .cc file per method. relative.h is their common interface.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
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

// Returns the table row of each distance.
std::vector<int32_t> ShawRows(const ShawSettings& settings, const Distances& distances);

// Transformer-XL's relative term (arXiv:1901.02860), which XLNet also uses.

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

// Wavelet positional representation (arXiv:2502.02004): wavelets of the distance at several scales and shifts.

absl::Status Complete(WprSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const WprSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const WprSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

// Contextual position encoding (arXiv:2405.18719): positions are sums of gates, which depend on the content.

absl::Status Complete(CopeSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const CopeSettings& settings, const RelativeShape& shape, const Limits& limits);
// Returns the position embeddings E as of_query, without rows by distance.
absl::StatusOr<RelativeTables> MakeTables(const CopeSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

// Adds one query's row to `sums`. logits: its scaled products with the keys, -infinity for a hidden key; their sigmoids
// are the gates. products: q . E_n at products[n * stride].
void AddCopeRow(absl::Span<const float> logits, const double* products, size_t stride, int64_t positions, double* sums);

// Inkling's bias by distance. q holds the relative states.

absl::Status Complete(InklingSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::Status CheckPositions(const InklingSettings& settings, const RelativeShape& shape, const Limits& limits);
absl::StatusOr<RelativeTables> MakeTables(const InklingSettings& settings, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

// Returns tau at each position; absent without log scaling.
std::optional<Matrix<double>> InklingFactors(const InklingSettings& settings, Frequencies arithmetic,
                                             Matrix<double> positions);

}  // namespace posenc
