#include "posenc/bias/generate_bias.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "posenc/base/caches.h"
#include "posenc/base/checks.h"
#include "posenc/base/status.h"
#include "posenc/bias/bias_geometry.h"
#include "posenc/bias/bias_mask.h"
#include "posenc/kernels/convert.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc {
namespace {

// The shape [.., Sq, Sk] with Sq replaced by `queries`.
TensorShape WithQueries(TensorShape shape, int64_t queries) {
  if (shape.rank() >= 2) shape.shape[shape.rank() - 2] = queries;
  return shape;
}

Matrix<double> Constant(double value, int64_t count) { return {std::vector<double>(count, value), 1, count, true}; }

// BLOOM's key positions under a padding mask: valid keys are counted from 0, padded keys have position 0.
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

absl::StatusOr<BiasGeneration> BiasGeneration::Create(GenerateBias call, const Limits& limits, Extent extent) {
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
  POSENC_ASSIGN_OR_RETURN(int64_t bytes, ByteSize("answer", bias.shape_, limits));
  if (extent == Extent::kTiles && !bias.shape_.empty()) {
    bytes = *ByteSize("answer", WithQueries(bias.shape_, 1), limits);
  }
  POSENC_RETURN_IF_ERROR(CheckOutput(bytes, limits));
  if (bias.shape_.empty()) return bias;

  // Positions are laid out last, when the answer's limit bounds their size.
  POSENC_RETURN_IF_ERROR(bias.LayPositions());
  if (IsOfWholeDistances(bias.call_.method)) POSENC_RETURN_IF_ERROR(bias.LayDistances(limits));
  if (bias.window_ && !bias.IsIndex()) bias.lists_.values = WindowTable(arithmetic, bias.call_.method);
  return bias;
}

absl::Status BiasGeneration::CheckForm() const {
  const BiasMethod& method = call_.method;
  if (IsIndex()) {
    if (call_.dtype != DType::kINT32) {
      return InvalidArgument("UNSUPPORTED", "dtype", Name(call_.dtype), "must be INT32 for an index");
    }
    const bool has_index = window_ || std::holds_alternative<T5Settings>(method.settings);
    if (!has_index) {
      return InvalidArgument("CONFLICT", "form", "BIAS_FORM_INDEX", "requires t5, swin, swin_v2 or beit");
    }
    if (call_.mask) return InvalidArgument("NOT_READ", "mask", "", "an index has no mask");
    if (call_.geometry.head_start || call_.geometry.head_count) {
      return InvalidArgument("NOT_READ", "geometry.head_start", "", "an index is the same for every head");
    }
  } else {
    POSENC_RETURN_IF_ERROR(CheckDataType(call_.scores ? "scores.dtype" : "dtype", call_.dtype));
    if (ReadsTable(method) && !method.table) {
      return InvalidArgument("MISSING", "table", "",
                             "is required: this method reads its values from the model's table");
    }
  }
  if (IsCompact() && std::holds_alternative<FireSettings>(method.settings)) {
    return InvalidArgument("CONFLICT", "form", "BIAS_FORM_COMPACT",
                           "a compact bias has one value per distance; FIRE's also depends on the query's position");
  }
  if (IsCompact() && window_) {
    return InvalidArgument("CONFLICT", "form", "BIAS_FORM_COMPACT",
                           "a compact bias has one value per distance; a window's depends on two distances");
  }
  return absl::OkStatus();
}

absl::Status BiasGeneration::LayLengths() {
  BiasGeometry& g = call_.geometry;
  if (window_) {
    if (!std::holds_alternative<std::monostate>(g.query) || g.key_positions) {
      return InvalidArgument("NOT_READ", g.key_positions ? "geometry.key_positions" : "geometry.query", "",
                             "is not read by window methods: their tokens are in row-major order");
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
                             fmt::format("must be {}, the tokens of the window", window_->count()));
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
      return InvalidArgument("CONFLICT", "alibi.position_mask", "", "cannot be combined with geometry.key_positions");
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
                             "a compact bias cannot have a mask, explicit positions or a batch axis");
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
  const Matrix<double> ends = QueryEnds(g, queries_);
  mask_key_positions_ = KeyPositions(g);
  POSENC_RETURN_IF_ERROR(CheckPositions("geometry.query_positions", ends));
  POSENC_RETURN_IF_ERROR(CheckPositions("geometry.key_positions", mask_key_positions_));
  for (int64_t b = 0; call_.mask && b < (mask_key_positions_.shared ? 1 : mask_key_positions_.rows); ++b) {
    const double* row = mask_key_positions_.row(b);
    mask_keys_ascend_ = mask_keys_ascend_ && std::is_sorted(row, row + mask_key_positions_.columns);
  }
  // Copies the positions only if the mask needs them, too.
  const auto take = [this](Matrix<double>& positions) { return call_.mask ? positions : std::move(positions); };
  if (alibi() != nullptr && IsKeyOnly(alibi()->form)) {
    query_origin_ = alibi()->form == AlibiForm::kMpt ? static_cast<double>(*g.key_length - 1) : 0.0;
    key_positions_ = alibi()->position_mask ? CountValid(*alibi()->position_mask) : take(mask_key_positions_);
  } else if (compact) {
    // Entry n is for the distance j - i = n - (Sq - 1); queries start at the offset.
    query_origin_ = ends.values.front() + static_cast<double>(*g.query_length - 1);
    key_positions_ = Line(0, keys_);
  } else {
    key_positions_ = window_ ? WindowKeys(window_->window, window_->cls) : take(mask_key_positions_);
  }
  if (auto* alibi = std::get_if<AlibiSettings>(&call_.method.settings);
      alibi != nullptr && alibi->bias_dtype && *alibi->bias_dtype != DType::kFP32) {
    RoundTo(*alibi->bias_dtype, slopes_.values);
    if (alibi->future_slopes) RoundTo(*alibi->bias_dtype, alibi->future_slopes->values);
    RoundTo(*alibi->bias_dtype, key_positions_.values);
  }
  return absl::OkStatus();
}

absl::Status BiasGeneration::LayDistances(const Limits& limits) {
  const Matrix<double> ends = query_origin_ ? Constant(*query_origin_, 1) : QueryEnds(call_.geometry, queries_);
  POSENC_RETURN_IF_ERROR(CheckWhole("geometry.query_positions", ends));
  POSENC_RETURN_IF_ERROR(CheckWhole("geometry.key_positions", key_positions_));
  const auto [first, last] = Range(ends, key_positions_);
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
                                             static_cast<int64_t>(std::max(std::abs(first), std::abs(last))));
    return absl::OkStatus();
  }
  lists_.first_distance = static_cast<int64_t>(first);
  const auto count = static_cast<int64_t>(last - first) + 1;
  const Frequencies arithmetic = call_.precision.frequencies;
  if (IsIndex()) {
    buckets_ = T5Buckets(arithmetic, std::get<T5Settings>(call_.method.settings), lists_.first_distance, count);
  } else {
    lists_.values = DistanceValues(arithmetic, call_.method, lists_.first_distance, count);
  }
  return absl::OkStatus();
}

double BiasGeneration::FirstDistance() const {
  return window_ ? WindowFirst(window_->window) : static_cast<double>(lists_.first_distance);
}

int64_t BiasGeneration::held_bytes() const {
  const size_t bytes = lists_.values.values.size() * sizeof(float) + buckets_.size() * sizeof(int32_t) +
                       (key_positions_.values.size() + mask_key_positions_.values.size()) * sizeof(double);
  return static_cast<int64_t>(bytes);
}

BiasGeneration::QueryRows BiasGeneration::LayRows(int64_t first, int64_t count) const {
  QueryRows rows{.first = first, .count = count};
  if (call_.mask) rows.mask_positions = QueryPositions(call_.geometry, first, count);
  if (query_origin_) {
    rows.positions = Constant(*query_origin_, count);
  } else if (window_) {
    rows.positions = WindowQueries(window_->window, window_->cls, first, count);
  } else {
    rows.positions = call_.mask ? rows.mask_positions : QueryPositions(call_.geometry, first, count);
  }
  if (alibi() != nullptr && alibi()->bias_dtype && *alibi()->bias_dtype != DType::kFP32) {
    RoundTo(*alibi()->bias_dtype, rows.positions.values);
  }
  if (fire_ != nullptr) rows.normalisers = fire_->Normalisers(rows.positions.values);
  if (alibi() != nullptr && !IsCompact()) rows.alibi = LayAlibi(rows);
  rows.large = ExceedsCaches(batch_.value_or(1) * heads_ * count * keys_ * static_cast<int64_t>(SizeOf(call_.dtype)));
  return rows;
}

}  // namespace posenc
