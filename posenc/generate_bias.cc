#include "posenc/generate_bias.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "posenc/bias_geometry.h"
#include "posenc/bias_mask.h"
#include "posenc/caches.h"
#include "posenc/checks.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/distance_bias.h"
#include "posenc/methods/alibi.h"
#include "posenc/methods/t5.h"
#include "posenc/methods/window.h"
#include "posenc/positions.h"
#include "posenc/status.h"

namespace posenc {
namespace {

Matrix<double> Constant(double value, int64_t count) { return {std::vector<double>(count, value), 1, count, true}; }

// BLOOM's key positions under a padding mask: valid keys are counted from 0, padded ones stand at 0.
Matrix<double> CountValid(const Matrix<uint8_t>& valid) {
  Matrix<double> positions{{}, valid.rows, valid.columns, valid.shared};
  positions.values.reserve(valid.values.size());
  for (int64_t b = 0; b < valid.rows; ++b) {
    double next = 0;
    for (int64_t j = 0; j < valid.columns; ++j) positions.values.push_back(valid.row(b)[j] ? next++ : 0.0);
  }
  return positions;
}

void RoundTo(DType dtype, std::vector<double>& values) {
  std::vector<float> floats(values.begin(), values.end());
  std::vector<uint16_t> narrow(values.size());
  Convert(DType::kFP32, dtype, floats.data(), narrow.data(), values.size());
  Convert(dtype, DType::kFP32, narrow.data(), floats.data(), values.size());
  values.assign(floats.begin(), floats.end());
}

}  // namespace

absl::StatusOr<BiasGeneration> BiasGeneration::Create(GenerateBias call, const Limits& limits) {
  POSENC_RETURN_IF_ERROR(Complete(call.method, limits));
  BiasGeneration bias(std::move(call));
  bias.window_ = WindowOf(bias.call_.method);
  POSENC_RETURN_IF_ERROR(bias.CheckForm());
  if (const auto& scores = bias.call_.scores) {
    if (scores->rank() != 4) {
      return InvalidArgument("MISMATCH", "scores.shape", ToString(scores->shape), "must be [B, H, Sq, Sk]");
    }
    POSENC_RETURN_IF_ERROR(ByteSize("scores", *scores, limits).status());
  }
  POSENC_RETURN_IF_ERROR(bias.LayLengths());
  POSENC_RETURN_IF_ERROR(bias.LayHeads());
  const Frequencies arithmetic = bias.call_.precision.frequencies;
  if (bias.alibi() != nullptr) bias.slopes_ = AlibiSlopes(arithmetic, *bias.alibi());
  POSENC_RETURN_IF_ERROR(bias.LayBatch());
  POSENC_RETURN_IF_ERROR(bias.LayShape());
  POSENC_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize("answer", bias.shape_, limits));
  POSENC_RETURN_IF_ERROR(CheckOutput(bytes, limits));
  if (bias.shape_.empty()) return bias;
  bias.large_ = ExceedsCaches(bytes);

  // Only now, with the sizes bounded by the answer's, are positions laid out.
  POSENC_RETURN_IF_ERROR(bias.LayPositions());
  if (IsOfWholeDistances(bias.call_.method)) POSENC_RETURN_IF_ERROR(bias.LayDistances(limits));
  if (bias.alibi() != nullptr && !bias.IsCompact()) bias.LayAlibi();
  if (bias.window_ && !bias.IsIndex()) bias.values_ = WindowTable(arithmetic, bias.call_.method);
  return bias;
}

absl::Status BiasGeneration::CheckForm() const {
  const BiasMethod& method = call_.method;
  if (IsIndex()) {
    if (call_.dtype != DType::kINT32) {
      return InvalidArgument("UNSUPPORTED", "dtype", Name(call_.dtype), "an index is INT32");
    }
    const bool has_index = window_ || std::holds_alternative<T5Settings>(method.settings);
    if (!has_index) {
      return InvalidArgument("CONFLICT", "form", "BIAS_FORM_INDEX",
                             "is for methods with a table: t5, swin, swin_v2, beit");
    }
    if (call_.mask) return InvalidArgument("NOT_READ", "mask", "", "an index has none");
    if (call_.geometry.head_start || call_.geometry.head_count) {
      return InvalidArgument("NOT_READ", "geometry.head_start", "", "an index is the same for every head");
    }
  } else {
    POSENC_RETURN_IF_ERROR(CheckDataType(call_.scores ? "scores.dtype" : "dtype", call_.dtype));
    if (ReadsTable(method) && !method.table) {
      return InvalidArgument("MISSING", "table", "", "this method looks its values up: give the model's table");
    }
  }
  if (IsCompact() && std::holds_alternative<FireSettings>(method.settings)) {
    return InvalidArgument("CONFLICT", "form", "BIAS_FORM_COMPACT",
                           "holds one value a distance: FIRE's depends on the query's position too");
  }
  if (IsCompact() && window_) {
    return InvalidArgument("CONFLICT", "form", "BIAS_FORM_COMPACT",
                           "holds one value a distance: a window's bias depends on two");
  }
  return absl::OkStatus();
}

absl::Status BiasGeneration::LayLengths() {
  BiasGeometry& g = call_.geometry;
  if (window_) {
    if (!std::holds_alternative<std::monostate>(g.query) || g.key_positions) {
      return InvalidArgument("NOT_READ", g.key_positions ? "geometry.key_positions" : "geometry.query", "",
                             "a window's tokens stand row by row");
    }
    if (!g.query_length) g.query_length = window_->count();
    if (!g.key_length) g.key_length = window_->count();
  }
  if (call_.scores) {
    if (!g.query_length) g.query_length = call_.scores->shape[2];
    if (!g.key_length) g.key_length = call_.scores->shape[3];
  }
  for (const auto& [field, length] :
       {std::pair{"geometry.query_length", g.query_length}, {"geometry.key_length", g.key_length}}) {
    if (window_ && *length != window_->count()) {
      return InvalidArgument("MISMATCH", field, fmt::format("{}", *length),
                             fmt::format("must be the window's {} tokens", window_->count()));
    }
  }
  POSENC_RETURN_IF_ERROR(CheckLengths(g));
  queries_ = *g.query_length;
  keys_ = *g.key_length;
  return absl::OkStatus();
}

absl::Status BiasGeneration::LayHeads() {
  if (IsIndex()) {
    heads_ = 1;
    return absl::OkStatus();
  }
  const int64_t all = HeadsOf(call_.method).value_or(call_.scores ? call_.scores->shape[1] : 1);
  POSENC_ASSIGN_OR_RETURN(const HeadRange range, Heads(call_.geometry, all));
  head_start_ = range.start;
  heads_ = range.count;
  return absl::OkStatus();
}

absl::Status BiasGeneration::LayBatch() {
  const BiasGeometry& g = call_.geometry;
  BatchSize batch;
  POSENC_RETURN_IF_ERROR(CheckBatch(g, call_.mask, batch));
  if (alibi() != nullptr) {
    batch.See("alibi.position_mask", alibi()->position_mask);
    POSENC_RETURN_IF_ERROR(CheckColumns("alibi.position_mask", alibi()->position_mask, keys_));
    if (!slopes_.shared) batch.See("alibi.given", slopes_.rows);
    if (alibi()->position_mask && g.key_positions) {
      return InvalidArgument("CONFLICT", "alibi.position_mask", "", "geometry.key_positions says where the keys stand");
    }
  }
  if (call_.scores) batch.See("scores", call_.scores->shape[0]);
  batch_ = batch.batch();
  consecutive_ = !std::holds_alternative<PositionIds>(g.query) && !g.key_positions;
  return batch.status();
}

absl::Status BiasGeneration::LayShape() {
  shape_.dtype = call_.dtype;
  if (IsCompact()) {
    if (call_.mask || batch_ || !consecutive_) {
      return InvalidArgument("CONFLICT", "form", "BIAS_FORM_COMPACT",
                             "holds one value a distance: not with a mask, explicit positions or a batch axis");
    }
    if (alibi() != nullptr && IsKeyOnly(alibi()->form)) {
      shape_.shape = {heads_, 1, keys_};
    } else {
      const bool empty = queries_ == 0 || keys_ == 0;
      if (__builtin_add_overflow(queries_, keys_, &keys_)) keys_ = std::numeric_limits<int64_t>::max();
      keys_ = empty ? 0 : keys_ - 1;
      shape_.shape = {keys_};
      if (!IsIndex()) shape_.shape.insert(shape_.shape.begin(), heads_);
    }
    queries_ = 1;
    return absl::OkStatus();
  }
  if (batch_) shape_.shape.push_back(*batch_);
  if (!IsIndex()) shape_.shape.push_back(heads_);
  shape_.shape.insert(shape_.shape.end(), {queries_, keys_});
  if (call_.scores && call_.scores->shape != shape_.shape) {
    return InvalidArgument("MISMATCH", "scores.shape", ToString(call_.scores->shape),
                           fmt::format("must be {}", ToString(shape_.shape)));
  }
  return absl::OkStatus();
}

absl::Status BiasGeneration::LayPositions() {
  BiasGeometry& g = call_.geometry;
  const bool compact = IsCompact();
  mask_query_positions_ = QueryPositions(g, compact ? 1 : queries_);
  mask_key_positions_ = KeyPositions(g);
  POSENC_RETURN_IF_ERROR(CheckPositions("geometry.query_positions", mask_query_positions_));
  POSENC_RETURN_IF_ERROR(CheckPositions("geometry.key_positions", mask_key_positions_));
  for (int64_t b = 0; call_.mask && b < (mask_key_positions_.shared ? 1 : mask_key_positions_.rows); ++b) {
    const double* row = mask_key_positions_.row(b);
    mask_keys_ascend_ = mask_keys_ascend_ && std::is_sorted(row, row + mask_key_positions_.columns);
  }
  // The mask's own copy is needed only where there is one.
  const auto take = [this](Matrix<double>& positions) { return call_.mask ? positions : std::move(positions); };
  if (alibi() != nullptr && IsKeyOnly(alibi()->form)) {
    const double origin = alibi()->form == AlibiForm::kMpt ? static_cast<double>(*g.key_length - 1) : 0.0;
    query_positions_ = Constant(origin, queries_);
    key_positions_ = alibi()->position_mask ? CountValid(*alibi()->position_mask) : take(mask_key_positions_);
  } else if (compact) {
    // Entry n stands for the distance j - i = n - (Sq - 1); queries start at the offset.
    query_positions_ = Constant(mask_query_positions_.values.front() + static_cast<double>(*g.query_length - 1), 1);
    key_positions_ = Line(0, keys_);
  } else {
    query_positions_ = take(mask_query_positions_);
    key_positions_ = take(mask_key_positions_);
  }
  if (auto* alibi = std::get_if<AlibiSettings>(&call_.method.settings);
      alibi != nullptr && alibi->bias_dtype && *alibi->bias_dtype != DType::kFP32) {
    RoundTo(*alibi->bias_dtype, slopes_.values);
    if (alibi->future_slopes) RoundTo(*alibi->bias_dtype, alibi->future_slopes->values);
    RoundTo(*alibi->bias_dtype, key_positions_.values);
    RoundTo(*alibi->bias_dtype, query_positions_.values);
  }
  return absl::OkStatus();
}

absl::Status BiasGeneration::LayDistances(const Limits& limits) {
  POSENC_RETURN_IF_ERROR(CheckWhole("geometry.query_positions", query_positions_));
  POSENC_RETURN_IF_ERROR(CheckWhole("geometry.key_positions", key_positions_));
  const auto [first, last] = Range(query_positions_, key_positions_);
  const double largest = LargestDistance(call_.method);
  if (first < -largest || last > largest) {
    return InvalidArgument("OUT_OF_RANGE", "geometry.query_positions", fmt::format("distances {} .. {}", first, last),
                           fmt::format("must be at most {} in magnitude", largest));
  }
  const double cost = CostOf(call_.precision.frequencies, call_.method, first, last);
  if (cost > static_cast<double>(limits.max_bias_values)) {
    return TooLarge("geometry", fmt::format("distances {} .. {}: {} values", first, last, cost),
                    fmt::format("at most {} (max_bias_values)", limits.max_bias_values));
  }
  if (const auto* fire = std::get_if<FireSettings>(&call_.method.settings)) {
    fire_ = std::make_shared<const FireRows>(call_.precision.frequencies, *fire,
                                             static_cast<int64_t>(std::max(std::abs(first), std::abs(last))),
                                             query_positions_.values);
    return absl::OkStatus();
  }
  first_distance_ = static_cast<int64_t>(first);
  const auto count = static_cast<int64_t>(last - first) + 1;
  const Frequencies arithmetic = call_.precision.frequencies;
  if (IsIndex()) {
    buckets_ = T5Buckets(arithmetic, std::get<T5Settings>(call_.method.settings), first_distance_, count);
  } else {
    values_ = DistanceValues(arithmetic, call_.method, first_distance_, count);
  }
  return absl::OkStatus();
}

// For each key where the value of its cell stands: by distance in values_ or buckets_, else in the window's table.
void BiasGeneration::IndexRow(int64_t b, size_t query, int32_t* row) const {
  if (window_) return WindowRow(window_->window, window_->cls, static_cast<int64_t>(query), row);
  const double zero = query_positions_.row(b)[query] + static_cast<double>(first_distance_);
  const double* keys = key_positions_.row(b);
  for (int64_t j = 0; j < keys_; ++j) row[j] = static_cast<int32_t>(keys[j] - zero);
}

void BiasGeneration::RunIndex(int64_t b, size_t begin, size_t end, std::byte* out) const {
  std::vector<int32_t> row(keys_);
  for (size_t query = begin; query < end; ++query) {
    IndexRow(b, query, row.data());
    if (!window_) {
      for (int32_t& entry : row) entry = buckets_[entry];
    }
    std::memcpy(out + query * row.size() * sizeof(int32_t), row.data(), row.size() * sizeof(int32_t));
  }
}

void BiasGeneration::RunMatrix(int64_t matrix, size_t begin, size_t end, const std::byte* scores,
                               std::byte* out) const {
  const int64_t b = matrix / heads_, head = head_start_ + matrix % heads_;
  const bool bias_in_dtype = call_.precision.table_dtype == TableDtype::kTensor;
  DistanceBias work{
      .dtype = call_.dtype,
      .rounding = bias_in_dtype ? Rounding::kEachOperation : call_.precision.rounding,
      .queries = static_cast<size_t>(queries_),
      .keys = static_cast<size_t>(keys_),
      .scores = scores,
      .out = out,
      .large = large_,
  };
  if (call_.mask) {
    SetMask(*call_.mask, b, &work);
    work.mask_keys_ascend = mask_keys_ascend_;
    work.mask_query_positions = mask_query_positions_.row(b);
    work.mask_key_positions = mask_key_positions_.row(b);
  }
  if (alibi() != nullptr && values_.values.empty()) {
    work.query_positions = query_positions_.row(b);
    work.key_positions = key_positions_.row(b);
    SetSlopes(b, head, &work);
  }
  if (fire_ != nullptr) {
    std::vector<float> row(keys_);
    work.bias = row.data();
    for (size_t query = begin; query < end; ++query) {
      const double* position = query_positions_.row(b) + query;
      fire_->Fill(head, position - query_positions_.values.data(), *position, key_positions_.row(b), row.size(),
                  row.data());
      posenc::Run(work, query, query + 1);
    }
    return;
  }
  if (values_.values.empty()) return posenc::Run(work, begin, end);  // linear, or none

  // ALiBi's are of this call's heads alone.
  const float* values = values_.row(alibi() != nullptr ? head - head_start_ : head);
  if (row_shift_ == 0 || (consecutive_ && !window_)) {
    work.bias = values;
    if (row_shift_ != 0) {
      work.bias += static_cast<int64_t>(key_positions_.row(b)[0] - query_positions_.row(b)[0]) - first_distance_;
    }
    work.bias_stride = row_shift_;
    return posenc::Run(work, begin, end);
  }
  std::vector<int32_t> index(keys_);
  std::vector<float> row(keys_);
  work.bias = row.data();
  for (size_t query = begin; query < end; ++query) {
    IndexRow(b, query, index.data());
    for (size_t j = 0; j < row.size(); ++j) row[j] = values[index[j]];
    posenc::Run(work, query, query + 1);
  }
}

absl::Status BiasGeneration::Run(const std::byte* scores, std::byte* out, WorkPool& pool,
                                 const Cancellation& cancelled) const {
  if (shape_.empty()) return absl::OkStatus();
  const size_t row = keys_ * SizeOf(call_.dtype);
  const size_t slab = std::max<size_t>((size_t{256} << 10) / row, 1);
  return pool.ParallelFor(batch_.value_or(1) * heads_ * queries_, slab, cancelled, [&](size_t begin, size_t end) {
    while (begin < end) {
      const size_t matrix = begin / queries_, first = matrix * queries_, stop = std::min<size_t>(end, first + queries_);
      std::byte* to = out + first * row;
      if (IsIndex()) {
        RunIndex(static_cast<int64_t>(matrix), begin - first, stop - first, to);
      } else {
        RunMatrix(static_cast<int64_t>(matrix), begin - first, stop - first,
                  scores == nullptr ? nullptr : scores + first * row, to);
      }
      begin = stop;
    }
  });
}

}  // namespace posenc
