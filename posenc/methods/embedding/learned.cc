#include "posenc/methods/embedding/encoding.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <string_view>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/kernels/convert.h"
#include "posenc/methods/embedding/resized_table.h"

namespace posenc {
namespace {

bool IsFloat(DType dtype) {
  return dtype == DType::kFP32 || dtype == DType::kFP16 || dtype == DType::kBF16 || dtype == DType::kFP64;
}

// Returns x * y rounded to odd: rounding the result to FP32, FP16 or BF16 equals rounding the real product once. An
// inexact product gets an odd last bit, so it is no rounding boundary of the narrower type, which has far fewer bits.
double ProductToOdd(double x, double y) {
  const double product = x * y;
  const double rest = std::fma(x, y, -product);
  if (!std::isfinite(product) || rest == 0 || (std::bit_cast<uint64_t>(product) & 1) != 0) return product;
  const bool away = (rest > 0) == (product > 0);
  return std::bit_cast<double>(std::bit_cast<uint64_t>(product) + (away ? 1 : -1));
}

class LearnedEncoding final : public Encoding {
 public:
  LearnedEncoding(LearnedSettings settings, Frequencies arithmetic) : s_(std::move(settings)), arithmetic_(arithmetic) {
    if (s_.resize) resized_.emplace(*s_.resize, s_.table_shape, s_.table, s_.scale, arithmetic_);
  }

  int64_t dim() const override { return s_.table_shape.shape[1]; }

  int64_t steps() const override { return dim() * (resized_ ? resized_->taps() : 1); }
  std::optional<PositionLine> AllRows() const override {
    if (!resized_) return std::nullopt;
    return PositionLine{resized_->rows(), static_cast<double>(-s_.offset), 1};
  }
  std::optional<Positions> OwnPositions() const override {
    if (!s_.token_valid) return std::nullopt;
    return CountValid(*s_.token_valid);
  }

  absl::Status CheckPosition(double position) const override {
    const int64_t rows = resized_ ? resized_->rows() : s_.table_shape.shape[0];
    const bool whole = position == std::floor(position);
    const double row = position + static_cast<double>(s_.offset);
    if (whole && row >= 0 && row < static_cast<double>(rows)) return absl::OkStatus();
    return InvalidArgument("OUT_OF_RANGE", "", fmt::format("{}", position),
                           whole ? fmt::format("must be a row of the {}table: its {} rows are for positions {} .. {}",
                                               resized_ ? "resized " : "", rows, -s_.offset, rows - 1 - s_.offset)
                                 : "must be an integer: a table has a row per integer position");
  }

  void Fill(const double* positions, size_t count, DType dtype, std::byte* out) const override {
    const size_t width = dim(), from_row = width * SizeOf(s_.table_shape.dtype), row_bytes = width * SizeOf(dtype);
    std::vector<double> scaled(s_.scale ? width : 0);
    for (size_t r = 0; r < count; ++r, out += row_bytes) {
      std::optional<int64_t> row = static_cast<int64_t>(positions[r]) + s_.offset;
      if (resized_) {
        const int64_t of_result = *row;
        row = resized_->CopyOf(of_result);
        if (!row) {
          resized_->Fill(of_result, dtype, out);
          continue;
        }
      }
      const std::byte* from = s_.table.data() + *row * from_row;
      if (!s_.scale) {
        Convert(s_.table_shape.dtype, dtype, from, out, width);
        continue;
      }
      Convert(s_.table_shape.dtype, DType::kFP64, from, scaled.data(), width);
      for (double& x : scaled) x = Scaled(x, dtype);
      Convert(DType::kFP64, dtype, scaled.data(), out, width);
    }
  }

  void AddTo(Fingerprint& fingerprint) const override {
    fingerprint.Add(s_.offset).Add(s_.scale.value_or(1.0)).Add(static_cast<int64_t>(s_.table_shape.dtype)).Add(dim());
    fingerprint.Add(std::string_view(reinterpret_cast<const char*>(s_.table.data()), s_.table.size()));
    if (!s_.resize) return;
    const TableResize& resize = *s_.resize;
    for (const auto* lengths : {&resize.source, &resize.target}) {
      for (const int64_t length : *lengths) fingerprint.Add(length);
    }
    fingerprint.Add(resize.scale_factor).Add(static_cast<int64_t>(resize.mode)).Add(int64_t{resize.align_corners});
    fingerprint.Add(int64_t{resize.antialias}).Add(static_cast<int64_t>(resize.padding));
    fingerprint.Add(static_cast<int64_t>(resize.operations)).Add(resize.rows_before).Add(resize.rows_after);
    fingerprint.Add(*resize.spatial_merge_size);
  }

 private:
  double Scaled(double x, DType dtype) const {
    switch (arithmetic_) {
      case Frequencies::kExact: return dtype == DType::kFP64 ? x * *s_.scale : ProductToOdd(x, *s_.scale);
      case Frequencies::kFloat64: return x * *s_.scale;
      case Frequencies::kFloat32: return static_cast<float>(x) * static_cast<float>(*s_.scale);
    }
    __builtin_unreachable();
  }

  LearnedSettings s_;
  Frequencies arithmetic_;
  std::optional<ResizedTable> resized_;
};

absl::Status CheckTable(const LearnedSettings& settings) {
  const int64_t width = settings.table_shape.shape[1], rows = settings.table_shape.shape[0];
  std::vector<double> values(width);
  for (int64_t row = 0; row < rows; ++row) {
    if (row % 64 == 0) InterruptionPoint();
    const size_t bytes = width * SizeOf(settings.table_shape.dtype);
    Convert(settings.table_shape.dtype, DType::kFP64, settings.table.data() + row * bytes, values.data(), width);
    for (int64_t column = 0; column < width; ++column) {
      if (std::isfinite(values[column])) continue;
      return InvalidArgument("OUT_OF_RANGE", fmt::format("table[{}, {}]", row, column),
                             fmt::format("{}", values[column]), "must be finite, because the table is resized");
    }
  }
  return absl::OkStatus();
}

}  // namespace

EncodingOr Encode(LearnedSettings settings, Frequencies arithmetic, const Limits&) {
  const TensorShape& table = settings.table_shape;
  if (table.rank() != 2 || table.shape[1] < 1) {
    return InvalidArgument("MISMATCH", "table.shape", ToString(table.shape), "must be [rows, D], D at least 1");
  }
  if (!IsFloat(table.dtype)) {
    return InvalidArgument("UNSUPPORTED", "table.dtype", Name(table.dtype), "must be FP32, FP16, BF16 or FP64");
  }
  POSENC_RETURN_IF_ERROR(CheckShift("offset", settings.offset));
  if (settings.scale) POSENC_RETURN_IF_ERROR(CheckFinite("scale", *settings.scale));
  if (settings.resize) {
    POSENC_RETURN_IF_ERROR(Within("resize", Complete(*settings.resize, table.shape[0])));
    POSENC_RETURN_IF_ERROR(CheckTable(settings));
  }
  return std::make_unique<LearnedEncoding>(std::move(settings), arithmetic);
}

}  // namespace posenc
