#include "posenc/relative/relative_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/bias/bias_geometry.h"
#include "posenc/bias/bias_mask.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/distance_bias.h"
#include "posenc/methods/relative/relative.h"
#include "posenc/methods/relative/relative_methods.h"
#include "posenc/relative/relative_sums.h"

namespace posenc {
namespace {

// Queries per slab: as many columns as the dot-product kernel takes at a time, fewer if rows are long (kSums).
constexpr int64_t kQueries = 32, kFewestQueries = 8;
constexpr int64_t kSums = int64_t{1} << 19;
// Most sums of a slab that has several queries.
constexpr int64_t kMostSums = int64_t{1} << 21;

// Calls visit(begin, end) for pieces of [0, keys), with interruption points between them.
template <typename Visit>
void InPieces(int64_t keys, const Visit& visit) {
  constexpr int64_t kPiece = 65536;
  for (int64_t begin = 0; begin < keys; begin += kPiece) {
    if (begin > 0) InterruptionPoint();
    visit(begin, std::min(begin + kPiece, keys));
  }
}

}  // namespace

absl::StatusOr<RelativeScores> RelativeScores::Create(RelativeScoresCall call, const Limits& limits) {
  RelativeScores scores(std::move(call));
  POSENC_RETURN_IF_ERROR(scores.LayOut(limits));
  if (!scores.shape_.empty()) POSENC_RETURN_IF_ERROR(scores.LayPositions(limits));
  return scores;
}

absl::Status RelativeScores::LayOut(const Limits& limits) {
  POSENC_ASSIGN_OR_RETURN(q_, HeadRows::Of("q", call_.q, call_.layout, limits));
  if (q_.dim < 1 || q_.dim > limits.max_rotary_dim) {
    return InvalidArgument("OUT_OF_RANGE", "q.shape", fmt::format("{} channels", q_.dim),
                           fmt::format("must be 1 .. {}", limits.max_rotary_dim));
  }
  BiasGeometry& g = call_.geometry;
  head_start_ = g.head_start.value_or(0);
  if (head_start_ < 0 || head_start_ > limits.max_heads) {
    return InvalidArgument("OUT_OF_RANGE", "geometry.head_start", fmt::format("{}", head_start_),
                           fmt::format("must be 0 .. {}", limits.max_heads));
  }
  if (g.head_count.value_or(q_.heads) != q_.heads) {
    return InvalidArgument("MISMATCH", "geometry.head_count", fmt::format("{}", *g.head_count),
                           fmt::format("must be {}, the heads of q", q_.heads));
  }
  relative_.heads = head_start_ + q_.heads;
  relative_.head_dim = q_.dim;
  relative_.content = call_.content;
  POSENC_RETURN_IF_ERROR(Within("method", Complete(call_.method, relative_, limits)));

  if (call_.content && std::holds_alternative<InklingSettings>(call_.method)) {
    return InvalidArgument("CONFLICT", "content", "true",
                           "must be false with method.inkling: q holds its relative states, not the queries");
  }
  const bool reads_keys = call_.content || ReadsKeys(call_.method);
  if (reads_keys != call_.k.has_value()) {
    return call_.k ? InvalidArgument("NOT_READ", "k", "", "must be absent without content for this method")
                   : InvalidArgument("MISSING", "k", "", "must be given: these scores depend on k");
  }
  if (call_.k) {
    POSENC_ASSIGN_OR_RETURN(k_, HeadRows::Of("k", *call_.k, call_.layout, limits));
    if (k_->dtype != q_.dtype || k_->batch != q_.batch || k_->dim != q_.dim || k_->heads < 1 ||
        q_.heads % k_->heads != 0) {
      return InvalidArgument(
          "MISMATCH", "k.shape", ToString(call_.k->shape),
          fmt::format("must have the type, batch and channels of q, {} of {}, and heads that divide q's",
                      ToString(call_.q.shape), Name(q_.dtype)));
    }
  }
  for (const auto& [field, length, given] :
       {std::tuple{"geometry.query_length", &g.query_length, std::optional(q_.tokens)},
        {"geometry.key_length", &g.key_length, k_ ? std::optional(k_->tokens) : std::nullopt}}) {
    if (!*length) *length = given;
    if (given && **length != *given) {
      return InvalidArgument("MISMATCH", field, fmt::format("{}", **length),
                             fmt::format("must be {}, as in the tensor", *given));
    }
  }
  if (!g.key_length) g.key_length = q_.tokens;
  POSENC_RETURN_IF_ERROR(CheckLengths(g, limits));
  BatchSize batch;
  batch.See("q", q_.batch);
  POSENC_RETURN_IF_ERROR(CheckBatch(g, call_.mask, batch));

  POSENC_RETURN_IF_ERROR(CheckDataType(call_.add_to ? "add_to.dtype" : "dtype", call_.dtype));
  keys_ = *g.key_length;
  shape_ = {call_.dtype, {q_.batch, q_.heads, q_.tokens, keys_}};
  if (call_.add_to && call_.add_to->shape != shape_.shape) {
    return InvalidArgument("MISMATCH", "add_to.shape", ToString(call_.add_to->shape),
                           fmt::format("must be {}", ToString(shape_.shape)));
  }
  POSENC_ASSIGN_OR_RETURN(bytes_, ByteSize("answer", shape_, limits));
  POSENC_RETURN_IF_ERROR(CheckOutput(bytes_, limits));
  scale_ = call_.scale.value_or(ScaleOf(call_.method, q_.dim));
  if (std::isfinite(scale_)) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", "scale", fmt::format("{}", scale_), "must be finite");
}

absl::Status RelativeScores::LayPositions(const Limits& limits) {
  const LargeBlocksMayBeRefused scope;
  query_positions_ = QueryPositions(call_.geometry, 0, q_.tokens);
  key_positions_ = KeyPositions(call_.geometry);
  for (const auto& [field, positions] :
       {std::pair{"geometry.query_positions", &query_positions_}, {"geometry.key_positions", &key_positions_}}) {
    POSENC_RETURN_IF_ERROR(posenc::CheckPositions(field, *positions));
    if (IsOfWholeDistances(call_.method)) POSENC_RETURN_IF_ERROR(CheckWhole(field, *positions));
  }
  if (!IsOfWholeDistances(call_.method)) return absl::OkStatus();
  relative_.distances = Range(query_positions_, key_positions_);
  POSENC_RETURN_IF_ERROR(CheckDistances(relative_.distances, limits));
  const auto [least_query, most_query] =
      std::minmax_element(query_positions_.values.begin(), query_positions_.values.end());
  const auto [least_key, most_key] = std::minmax_element(key_positions_.values.begin(), key_positions_.values.end());
  relative_.least_position = std::min(*least_query, *least_key);
  relative_.largest_position = std::max(*most_query, *most_key);
  return Within("method", posenc::CheckPositions(call_.method, relative_, limits));
}

// Kernel arguments of one query: the mask and the positions that it compares.
DistanceBias RelativeScores::RowWork(const Slab& slab, int64_t i) const {
  DistanceBias work{.dtype = call_.dtype, .queries = 1, .keys = static_cast<size_t>(keys_)};
  if (!call_.mask) return work;
  SetMask(*call_.mask, slab.b, &work);
  work.mask_query_positions = query_positions_.row(slab.b) + slab.begin + i;
  work.mask_key_positions = key_positions_.row(slab.b);
  if (work.query_documents != nullptr) work.query_documents += slab.begin + i;
  return work;
}

void RelativeScores::AddCope(const RelativeSums& terms, const Slab& slab, double* sums) const {
  const int64_t positions = std::get<CopeSettings>(call_.method).position_embeddings.rows;
  const std::vector<double> products = terms.QueryProducts(slab);
  std::vector<double> content(slab.count * keys_);
  terms.AddContent(slab, content.data());
  std::vector<float> row(keys_);
  for (int64_t i = 0; i < slab.count; ++i) {
    const double* logits = content.data() + i * keys_;
    InPieces(keys_, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) row[j] = static_cast<float>(scale_ * logits[j]);
    });
    DistanceBias work = RowWork(slab, i);
    work.dtype = DType::kFP32;
    work.mask_query_positions = query_positions_.row(slab.b) + slab.begin + i;
    work.mask_key_positions = key_positions_.row(slab.b);
    work.causal = true;
    work.fill = -std::numeric_limits<float>::infinity();
    work.zero_fully_masked_rows = false;
    work.bias = GivenBias{row.data()};
    work.out = reinterpret_cast<std::byte*>(row.data());
    ComputeDistanceBias(work, 0, 1);
    AddCopeRow(row, products.data() + i, slab.count, positions, sums + i * keys_);
  }
}

absl::Status RelativeScores::WriteScores(const Buffers& buffers, WorkPool& pool, const Cancellation& cancelled) const {
  if (shape_.empty()) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(const RelativeTables tables, [&] {
    const LargeBlocksMayBeRefused scope;
    return MakeTables(call_.method, relative_, call_.precision.frequencies, pool, cancelled);
  }());
  // Where nothing but the answer is rounded, it does not matter what the factors multiply.
  std::optional<Matrix<double>> of_term, of_queries;
  if (const auto* inkling = std::get_if<InklingSettings>(&call_.method)) {
    const LargeBlocksMayBeRefused scope;
    const bool states = RoundsTerm() && inkling->scaled == InklingScaled::kStates;
    (states ? of_queries : of_term) = InklingFactors(*inkling, call_.precision.frequencies, query_positions_);
  }
  const RelativeSums terms(q_, buffers.q, k_, buffers.k, tables, relative_, head_start_, query_positions_,
                           key_positions_, of_queries);
  const bool is_cope = std::holds_alternative<CopeSettings>(call_.method);
  const int64_t queries = std::min(
      {std::clamp(kSums / keys_, kFewestQueries, kQueries), std::max<int64_t>(kMostSums / keys_, 1), q_.tokens});
  const int64_t slabs = (q_.tokens + queries - 1) / queries;
  return pool.ParallelFor(
      q_.batch * q_.heads * slabs, 1, cancelled,
      [&](size_t begin, size_t end) {
        for (auto n = static_cast<int64_t>(begin); n < static_cast<int64_t>(end); ++n) {
          const int64_t matrix = n / slabs, first = n % slabs * queries;
          const Slab slab{matrix / q_.heads, matrix % q_.heads, first, std::min(queries, q_.tokens - first)};
          std::vector<double> sums(slab.count * keys_);
          if (call_.content) terms.AddContent(slab, sums.data());
          if (is_cope) {
            AddCope(terms, slab, sums.data());
          } else if (tables.query_rows) {
            terms.AddByPosition(slab, sums.data());
          } else {
            terms.AddByDistance(slab, sums.data());
          }
          Write(terms, tables, slab, buffers, of_term, sums.data());
        }
      },
      SlabBytes(terms, queries));
}

int64_t RelativeScores::SlabBytes(const RelativeSums& terms, int64_t queries) const {
  constexpr int64_t kDouble = sizeof(double);
  const int64_t sums = queries * keys_ * kDouble, row = keys_ * static_cast<int64_t>(sizeof(float));
  int64_t bytes = terms.TileBytes(queries) + sums + row;
  if (const auto* cope = std::get_if<CopeSettings>(&call_.method)) {
    bytes += sums + queries * std::min(cope->position_embeddings.rows, keys_ + 1) * kDouble;
  }
  return bytes;
}

bool RelativeScores::RoundsTerm() const {
  return call_.precision.table_dtype == TableDtype::kTensor || call_.precision.rounding == Rounding::kEachOperation;
}

void RelativeScores::Write(const RelativeSums& terms, const RelativeTables& tables, const Slab& slab,
                           const Buffers& buffers, const std::optional<Matrix<double>>& factors,
                           const double* sums) const {
  const size_t row_bytes = keys_ * SizeOf(call_.dtype);
  const double* query_positions = query_positions_.row(slab.b) + slab.begin;
  const double* key_positions = key_positions_.row(slab.b);
  std::vector<float> row(keys_);
  for (int64_t i = 0; i < slab.count; ++i) {
    const double factor = factors ? factors->row(slab.b)[slab.begin + i] : 1;
    const double early = RoundsTerm() ? 1 : factor, late = RoundsTerm() ? factor : 1;
    InPieces(keys_, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        double value = scale_ * sums[i * keys_ + j] * early;
        if (tables.zero_row && terms.RowOf(slab, i, j) == *tables.zero_row) value = 0;
        const bool without_bias = tables.cls_without_bias && (query_positions[i] == 0 || key_positions[j] == 0);
        if (tables.bias && !without_bias) value += tables.bias->row(head_start_ + slab.h)[terms.RowOf(slab, i, j)];
        // Every NaN becomes the default quiet NaN: the bias kernel rounds other NaNs as if they were numbers.
        row[j] = std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(value);
      }
    });
    if (late != 1) {
      InPieces(keys_, [&](int64_t begin, int64_t end) {
        RoundTo(call_.dtype, row.data() + begin, end - begin);
        for (int64_t j = begin; j < end; ++j) row[j] *= static_cast<float>(late);
      });
    }
    const size_t at = ((slab.b * q_.heads + slab.h) * q_.tokens + slab.begin + i) * row_bytes;
    DistanceBias work = RowWork(slab, i);
    work.rounding = RoundsTerm() ? Rounding::kEachOperation : call_.precision.rounding;
    work.bias = GivenBias{row.data()};
    work.scores = buffers.add_to == nullptr ? nullptr : buffers.add_to + at;
    work.out = buffers.out + at;
    ComputeDistanceBias(work, 0, 1);
  }
}

}  // namespace posenc
