#include "posenc/generate_bias.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/fingerprint.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/distance_bias.h"
#include "posenc/methods/alibi.h"
#include "posenc/positions.h"
#include "posenc/status.h"

namespace posenc {
namespace {

// Everything that has a batch axis must agree on B.
class BatchSize {
 public:
  void See(std::string_view field, int64_t rows) {
    if (!status_.ok()) return;
    if (batch_ && *batch_ != rows) {
      status_ = InvalidArgument("MISMATCH", field, fmt::format("for {} batch rows", rows),
                                fmt::format("{} has {}", field_, *batch_));
    } else {
      batch_ = rows;
      field_ = field;
    }
  }
  template <class T>
  void See(std::string_view field, const std::optional<Matrix<T>>& matrix) {
    if (matrix && !matrix->shared) See(field, matrix->rows);
  }
  const absl::Status& status() const { return status_; }
  const std::optional<int64_t>& batch() const { return batch_; }

 private:
  std::optional<int64_t> batch_;
  std::string field_;
  absl::Status status_;
};

// Every row-wise input must have as many columns as there are queries or keys.
template <class T>
absl::Status CheckColumns(std::string_view field, const std::optional<Matrix<T>>& matrix, int64_t columns) {
  if (!matrix || matrix->columns == columns) return absl::OkStatus();
  return InvalidArgument("MISMATCH", fmt::format("{}.shape", field), fmt::format("{} columns", matrix->columns),
                         fmt::format("must be {}", columns));
}

absl::Status CheckPositions(std::string_view field, const Matrix<double>& positions) {
  for (size_t n = 0; n < positions.values.size(); ++n) {
    if (!(std::abs(positions.values[n]) <= kLargestPosition)) {
      return CheckPosition(fmt::format("{}[{}]", field, n), positions.values[n]);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckMask(const Mask& mask) {
  for (const auto& [name, window] : {std::pair{"window_left", mask.window_left}, {"window_right", mask.window_right}}) {
    if (window && *window < 0) {
      return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", *window), "must be at least 0; absent: unlimited");
    }
  }
  if (const double* value = std::get_if<double>(&mask.fill); value != nullptr && std::isnan(*value)) {
    return InvalidArgument("OUT_OF_RANGE", "fill_value", "nan", "must be a number or an infinity");
  }
  return absl::OkStatus();
}

Matrix<double> Line(double start, int64_t count) {
  Matrix<double> line{{}, 1, count, true};
  line.values.reserve(count);
  for (int64_t n = 0; n < count; ++n) line.values.push_back(start + static_cast<double>(n));
  return line;
}

Matrix<double> Constant(double value, int64_t count) { return {std::vector<double>(count, value), 1, count, true}; }

// Of the first `queries` queries.
Matrix<double> QueryPositions(const BiasGeometry& geometry, int64_t queries) {
  if (const auto* ids = std::get_if<PositionIds>(&geometry.query)) return ids->ids;
  if (const auto* offsets = std::get_if<PerSequenceOffsets>(&geometry.query)) {
    Matrix<double> positions{{}, static_cast<int64_t>(offsets->offsets.size()), queries, false};
    positions.values.reserve(offsets->offsets.size() * queries);
    for (int64_t offset : offsets->offsets) {
      const auto first = static_cast<double>(offset);
      for (int64_t i = 0; i < queries; ++i) positions.values.push_back(first + static_cast<double>(i));
    }
    return positions;
  }
  const auto* offset = std::get_if<OffsetPositions>(&geometry.query);
  return Line(offset != nullptr ? static_cast<double>(offset->offset) : 0.0, queries);
}

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

float LowestFiniteOf(DType dtype) {
  switch (dtype) {
    case DType::kFP16: return -65504.0f;
    case DType::kBF16: return -0x1.fep127f;
    default: return -0x1.fffffep127f;
  }
}

bool KeyOnly(AlibiForm form) { return form == AlibiForm::kBloom || form == AlibiForm::kMpt; }

}  // namespace

absl::StatusOr<BiasGeneration> BiasGeneration::Create(GenerateBias call, const Limits& limits) {
  POSENC_RETURN_IF_ERROR(Within("alibi", Complete(call.alibi, limits)));
  if (call.dtype != DType::kFP32 && call.dtype != DType::kFP16 && call.dtype != DType::kBF16) {
    return InvalidArgument("UNSUPPORTED", call.scores ? "scores.dtype" : "dtype", Name(call.dtype),
                           "must be FP32, FP16 or BF16");
  }
  BiasGeneration bias(std::move(call));
  bias.slopes_ = AlibiSlopes(bias.call_.precision.frequencies, bias.call_.alibi);
  POSENC_RETURN_IF_ERROR(bias.Lay(limits));
  return bias;
}

absl::Status BiasGeneration::Lay(const Limits& limits) {
  BiasGeometry& g = call_.geometry;
  const AlibiSettings& alibi = call_.alibi;
  if (call_.scores) {
    if (call_.scores->rank() != 4) {
      return InvalidArgument("MISMATCH", "scores.shape", ToString(call_.scores->shape), "must be [B, H, Sq, Sk]");
    }
    POSENC_RETURN_IF_ERROR(ByteSize("scores", *call_.scores, limits).status());
  }
  if (g.query_length < 0 || g.key_length < 0) {
    const bool query = g.query_length < 0;
    return InvalidArgument("OUT_OF_RANGE", query ? "geometry.query_length" : "geometry.key_length",
                           fmt::format("{}", query ? g.query_length : g.key_length), "must be at least 0");
  }
  const int64_t available = alibi.num_heads - g.head_start;
  if (g.head_start < 0 || available < 0) {
    return InvalidArgument("OUT_OF_RANGE", "geometry.head_start", fmt::format("{}", g.head_start),
                           fmt::format("must be 0 .. num_heads = {}", alibi.num_heads));
  }
  heads_ = g.head_count.value_or(available);
  if (heads_ < 0 || heads_ > available) {
    return InvalidArgument("OUT_OF_RANGE", "geometry.head_count", fmt::format("{}", heads_),
                           fmt::format("must be 0 .. {} from head {} on", available, g.head_start));
  }
  if (g.query_length != g.key_length && std::holds_alternative<std::monostate>(g.query)) {
    return InvalidArgument(
        "MISSING", "geometry.query", "",
        "query_length != key_length: give query_offset (with a cache of n keys: n), query_offsets or "
        "query_positions");
  }

  BatchSize batch;
  if (const auto* offsets = std::get_if<PerSequenceOffsets>(&g.query)) {
    batch.See("geometry.query_offsets", static_cast<int64_t>(offsets->offsets.size()));
  }
  std::optional<Matrix<double>> query_ids;
  if (const auto* ids = std::get_if<PositionIds>(&g.query)) query_ids = ids->ids;
  const std::optional<Matrix<uint8_t>> no_flags;
  const auto& key_valid = call_.mask ? call_.mask->key_valid : no_flags;
  batch.See("geometry.query_positions", query_ids);
  batch.See("geometry.key_positions", g.key_positions);
  batch.See("alibi.position_mask", alibi.position_mask);
  batch.See("mask.key_valid", key_valid);
  if (!slopes_.shared) batch.See("alibi.given", slopes_.rows);
  if (call_.scores) batch.See("scores", call_.scores->shape[0]);
  POSENC_RETURN_IF_ERROR(batch.status());
  batch_ = batch.batch();

  POSENC_RETURN_IF_ERROR(CheckColumns("geometry.query_positions", query_ids, g.query_length));
  POSENC_RETURN_IF_ERROR(CheckColumns("geometry.key_positions", g.key_positions, g.key_length));
  POSENC_RETURN_IF_ERROR(CheckColumns("alibi.position_mask", alibi.position_mask, g.key_length));
  POSENC_RETURN_IF_ERROR(CheckColumns("mask.key_valid", key_valid, g.key_length));
  if (alibi.position_mask && g.key_positions) {
    return InvalidArgument("CONFLICT", "alibi.position_mask", "", "geometry.key_positions says where the keys stand");
  }
  if (call_.mask) POSENC_RETURN_IF_ERROR(Within("mask", CheckMask(*call_.mask)));

  queries_ = g.query_length;
  keys_ = g.key_length;
  shape_.dtype = call_.dtype;
  const bool compact = call_.form == BiasForm::kCompact;
  if (compact) {
    const bool plain = !call_.mask && !batch_ && !query_ids && !g.key_positions;
    if (!plain) {
      return InvalidArgument("CONFLICT", "form", "BIAS_FORM_COMPACT",
                             "holds one value a distance: not with a mask, explicit positions or a batch axis");
    }
    queries_ = 1;
    if (KeyOnly(alibi.form)) {
      shape_.shape = {heads_, 1, keys_};
    } else {
      if (__builtin_add_overflow(g.query_length, g.key_length, &keys_)) keys_ = std::numeric_limits<int64_t>::max();
      keys_ = g.query_length == 0 || g.key_length == 0 ? 0 : keys_ - 1;
      shape_.shape = {heads_, keys_};
    }
  } else {
    if (batch_) shape_.shape.push_back(*batch_);
    shape_.shape.insert(shape_.shape.end(), {heads_, queries_, keys_});
    if (call_.scores && call_.scores->shape != shape_.shape) {
      return InvalidArgument("MISMATCH", "scores.shape", ToString(call_.scores->shape),
                             fmt::format("must be {}", ToString(shape_.shape)));
    }
  }
  POSENC_ASSIGN_OR_RETURN(const int64_t bytes, ByteSize("answer", shape_, limits));
  POSENC_RETURN_IF_ERROR(CheckOutput(bytes, limits));
  if (shape_.empty()) return absl::OkStatus();

  // Only now, with the sizes bounded by the answer's, are positions laid out.
  mask_query_positions_ = QueryPositions(g, compact ? std::min<int64_t>(g.query_length, 1) : g.query_length);
  mask_key_positions_ = g.key_positions ? *g.key_positions : Line(0, g.key_length);
  POSENC_RETURN_IF_ERROR(CheckPositions("geometry.query_positions", mask_query_positions_));
  POSENC_RETURN_IF_ERROR(CheckPositions("geometry.key_positions", mask_key_positions_));
  // The mask's own copy is needed only where there is one.
  const auto take = [this](Matrix<double>& positions) { return call_.mask ? positions : std::move(positions); };
  if (KeyOnly(alibi.form)) {
    const double origin = alibi.form == AlibiForm::kMpt ? static_cast<double>(g.key_length - 1) : 0.0;
    query_positions_ = Constant(origin, queries_);
    key_positions_ = alibi.position_mask ? CountValid(*alibi.position_mask) : take(mask_key_positions_);
  } else if (compact) {
    // Entry n stands for the distance j - i = n - (Sq - 1); queries start at the offset.
    query_positions_ = Constant(mask_query_positions_.values.front() + static_cast<double>(g.query_length - 1), 1);
    key_positions_ = Line(0, keys_);
  } else {
    query_positions_ = take(mask_query_positions_);
    key_positions_ = take(mask_key_positions_);
  }
  if (alibi.bias_dtype && *alibi.bias_dtype != DType::kFP32) {
    RoundTo(*alibi.bias_dtype, slopes_.values);
    if (call_.alibi.future_slopes) RoundTo(*alibi.bias_dtype, call_.alibi.future_slopes->values);
    RoundTo(*alibi.bias_dtype, key_positions_.values);
    RoundTo(*alibi.bias_dtype, query_positions_.values);
  }
  return absl::OkStatus();
}

std::string BiasGeneration::Fingerprint() const {
  const AlibiSettings& alibi = call_.alibi;
  posenc::Fingerprint parts;
  parts.Add("alibi").Add(static_cast<int64_t>(alibi.form)).Add(slopes_.values);
  parts.Add(static_cast<int64_t>(alibi.bias_dtype.value_or(DType::kFP32)));
  if (alibi.future_slopes) parts.Add(alibi.future_slopes->values);
  return parts.Digest();
}

absl::Status BiasGeneration::Run(const std::byte* scores, std::byte* out, WorkPool& pool,
                                 const Cancellation& cancelled) const {
  if (shape_.empty()) return absl::OkStatus();
  const size_t row = keys_ * SizeOf(call_.dtype);
  const int64_t matrices = batch_.value_or(1) * heads_;

  const auto matrix = [&](int64_t index, size_t begin, size_t end) {
    const int64_t b = index / heads_, head = call_.geometry.head_start + index % heads_;
    const float slope = static_cast<float>(slopes_.row(b)[head]);
    float future = slope;
    switch (call_.alibi.form) {
      case AlibiForm::kBloom:
      case AlibiForm::kMpt: break;
      case AlibiForm::kSymmetric: future = -slope; break;
      case AlibiForm::kCausal: future = 0; break;
      case AlibiForm::kAsymmetric: future = -static_cast<float>(call_.alibi.future_slopes->row(b)[head]); break;
    }
    const bool bias_in_dtype = call_.precision.table_dtype == TableDtype::kTensor;
    DistanceBias work{
        .dtype = call_.dtype,
        .rounding = bias_in_dtype ? Rounding::kEachOperation : call_.precision.rounding,
        .queries = static_cast<size_t>(queries_),
        .keys = static_cast<size_t>(keys_),
        .query_positions = query_positions_.row(b),
        .key_positions = key_positions_.row(b),
        .past_slope = slope,
        .future_slope = future,
        .bias_dtype = call_.alibi.bias_dtype.value_or(DType::kFP32),
        .scores = scores == nullptr ? nullptr : scores + index * queries_ * row,
        .out = out + index * queries_ * row,
    };
    if (call_.mask) {
      const Mask& mask = *call_.mask;
      work.mask_query_positions = mask_query_positions_.row(b);
      work.mask_key_positions = mask_key_positions_.row(b);
      work.causal = mask.causal;
      if (mask.window_left) work.window_left = static_cast<double>(*mask.window_left);
      if (mask.window_right) work.window_right = static_cast<double>(*mask.window_right);
      if (mask.key_valid) work.key_valid = mask.key_valid->row(b);
      const double* fill = std::get_if<double>(&mask.fill);
      work.fill = fill != nullptr ? static_cast<float>(*fill) : LowestFiniteOf(call_.dtype);
      work.zero_fully_masked_rows = mask.zero_fully_masked_rows;
    }
    posenc::Run(work, begin, end);
  };

  const size_t slab = std::max<size_t>((size_t{256} << 10) / row, 1);
  return pool.ParallelFor(matrices * queries_, slab, cancelled, [&](size_t begin, size_t end) {
    while (begin < end) {
      const size_t index = begin / queries_, stop = std::min(end, (index + 1) * queries_);
      matrix(index, begin - index * queries_, stop - index * queries_);
      begin = stop;
    }
  });
}

}  // namespace posenc
