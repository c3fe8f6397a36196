#include "posenc/methods/embedding/resized_table.h"

#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "posenc/base/interruption.h"
#include "posenc/base/real_precision.h"
#include "posenc/exact/real.h"
#include "posenc/kernels/convert.h"

namespace posenc {
namespace {

// More bits than a sum of products, or its distance from a tie, needs: denominators have at most 500 bits, and
// the table's float64 numbers and the scale 2,200 places.
constexpr mpfr_prec_t kSumBits = 3072;

// Returns x rounded to FP64; for other types rounded to odd, so that rounding it to them is one rounding of x.
double RoundFor(DType dtype, const mpq_class& x) {
  const RealPrecision precision(kSumBits);
  Real sum;
  mpfr_set_q(sum.get(), x.get_mpq_t(), MPFR_RNDN);
  if (dtype == DType::kFP64) return mpfr_get_d(sum.get(), MPFR_RNDN);
  const double toward_zero = mpfr_get_d(sum.get(), MPFR_RNDZ);
  if (mpfr_cmp_d(sum.get(), toward_zero) == 0) return toward_zero;
  return std::bit_cast<double>(std::bit_cast<uint64_t>(toward_zero) | 1);
}

float RoundedTo(DType dtype, float value) {
  if (dtype != DType::kFP64) RoundTo(dtype, &value, 1);
  return value;
}

// Rounds to BF16 with halves away from zero, as torch's embedding_bag does.
void RoundHalvesAway(const float* values, size_t count, std::byte* out) {
  for (size_t n = 0; n < count; ++n) {
    const auto narrow = static_cast<uint16_t>((std::bit_cast<uint32_t>(values[n]) + 0x8000) >> 16);
    std::memcpy(out + n * sizeof(narrow), &narrow, sizeof(narrow));
  }
}

// True if the number has at most 14 bits, which the product of two and a float32 keep exact in float64.
bool HasFewBits(const mpq_class& x) {
  return mpz_sizeinbase(x.get_num_mpz_t(), 2) <= 14 && mpz_popcount(x.get_den_mpz_t()) == 1;
}

}  // namespace

ResizedTable::ResizedTable(TableResize resize, const TensorShape& shape, std::span<const std::byte> table,
                           std::optional<double> scale, Frequencies arithmetic)
    : resize_(std::move(resize)),
      dtype_(shape.dtype),
      width_(shape.shape[1]),
      table_(table),
      scale_(scale),
      arithmetic_(arithmetic) {
  const size_t axes = resize_.target.size();
  ResizeAxis* const of[] = {axes == 2 ? &rows_axis_ : &columns_axis_, &columns_axis_};
  for (size_t n = 0; n < axes; ++n) {
    *of[n] = {resize_.source[n], resize_.target[n], std::nullopt};
    if (!resize_.scale_factor.empty()) of[n]->scale_factor = resize_.scale_factor[n];
  }
  rows_ = WeightsOf(rows_axis_);
  columns_ = WeightsOf(columns_axis_);
}

ResizedTable::Weights ResizedTable::WeightsOf(const ResizeAxis& axis) const {
  Weights all;
  const auto add = [&](const auto& taps, bool few_bits) {
    all.begin.push_back(static_cast<int64_t>(all.cells.size()));
    all.few_bits.push_back(few_bits);
    for (size_t n = 0; n < taps.cells.size(); ++n) {
      if (taps.weights[n] == 0) continue;
      all.cells.push_back(taps.cells[n]);
      if constexpr (requires { taps.weights[n].get_d(); }) {
        all.weights.push_back(taps.weights[n].get_d());
      } else {
        all.weights.push_back(taps.weights[n]);
      }
    }
  };
  for (int64_t n = 0; n < axis.target; ++n) {
    if (n % 64 == 0) InterruptionPoint();
    switch (arithmetic_) {
      case Frequencies::kExact: {
        const AxisTaps<mpq_class> taps = TapsOf<mpq_class>(resize_, axis, n);
        add(taps, std::all_of(taps.weights.begin(), taps.weights.end(), HasFewBits));
        break;
      }
      case Frequencies::kFloat64: add(TapsOf<double>(resize_, axis, n), false); break;
      case Frequencies::kFloat32: add(TapsOf<float>(resize_, axis, n), false); break;
    }
  }
  all.begin.push_back(static_cast<int64_t>(all.cells.size()));
  return all;
}

int64_t ResizedTable::rows() const {
  return resize_.rows_before + rows_axis_.target * columns_axis_.target + resize_.rows_after;
}

int64_t ResizedTable::taps() const {
  const auto average = [](const Weights& axis) {
    return 1 + static_cast<int64_t>(axis.cells.size()) / static_cast<int64_t>(axis.few_bits.size());
  };
  return average(rows_) * average(columns_);
}

ResizedTable::Cell ResizedTable::CellOf(int64_t index) const {
  const int64_t block = *resize_.spatial_merge_size, width = columns_axis_.target;
  const int64_t block_index = index / (block * block), within = index % (block * block), blocks = width / block;
  return {block_index / blocks * block + within / block, block_index % blocks * block + within % block};
}

std::optional<int64_t> ResizedTable::CopyOf(int64_t row) const {
  const int64_t cells = rows_axis_.target * columns_axis_.target, index = row - resize_.rows_before;
  if (index < 0) return row;
  if (index >= cells) return row - cells + rows_axis_.source * columns_axis_.source;
  if (resize_.mode != ResizeMode::kNearest) return std::nullopt;
  const Cell cell = CellOf(index);
  return TableRow(rows_.cells[cell.row], columns_.cells[cell.column]);
}

void ResizedTable::Fill(int64_t row, DType dtype, std::byte* out) const {
  const Cell cell = CellOf(row - resize_.rows_before);
  switch (arithmetic_) {
    case Frequencies::kExact: return FillExact(cell, dtype, out);
    case Frequencies::kFloat64: return FillRounded<double>(cell, dtype, out);
    case Frequencies::kFloat32: return FillRounded<float>(cell, dtype, out);
  }
}

int64_t ResizedTable::TableRow(int64_t row, int64_t column) const {
  return resize_.rows_before + row * columns_axis_.source + column;
}

const std::byte* ResizedTable::Row(int64_t row, int64_t column) const {
  return table_.data() + TableRow(row, column) * width_ * SizeOf(dtype_);
}

// Sums in float64 with a bound on the error, and once more exactly the elements for which that does not decide. Sums of
// numbers with few bits are often exact, and often ties.
void ResizedTable::FillExact(Cell cell, DType dtype, std::byte* out) const {
  std::vector<double> values(width_), sums(width_), magnitudes(width_), lost(width_);
  const bool few_bits = rows_.few_bits[cell.row] && columns_.few_bits[cell.column] && dtype_ != DType::kFP64 && !scale_;
  int64_t taps = 0;
  for (int64_t y = rows_.begin[cell.row]; y < rows_.begin[cell.row + 1]; ++y) {
    for (int64_t x = columns_.begin[cell.column]; x < columns_.begin[cell.column + 1]; ++x, ++taps) {
      const double weight = rows_.weights[y] * columns_.weights[x] * scale_.value_or(1);
      Convert(dtype_, DType::kFP64, Row(rows_.cells[y], columns_.cells[x]), values.data(), width_);
      for (size_t n = 0; n < width_; ++n) {
        const double product = weight * values[n], sum = sums[n] + product;
        const double added = sum - sums[n];  // Knuth's TwoSum
        lost[n] += std::abs((sums[n] - (sum - added)) + (product - added));
        magnitudes[n] += std::abs(product);
        sums[n] = sum;
      }
    }
  }
  // The weights are within 5 units of 2^-53, the scale's product and that with the value add 2, each sum adds 1.
  const double unit = 0x1p-53 * static_cast<double>(taps + 16);
  std::vector<double>& below = lost;
  std::vector<double>& above = magnitudes;
  for (size_t n = 0; n < width_; ++n) {
    const bool exact = few_bits && lost[n] == 0;
    const double error = exact || magnitudes[n] == 0 ? 0 : magnitudes[n] * unit + 0x1p-1000;
    const bool overflows = !std::isfinite(magnitudes[n]);
    below[n] = overflows ? -HUGE_VAL : sums[n] - error;
    above[n] = overflows ? HUGE_VAL : sums[n] + error;
  }
  const size_t size = SizeOf(dtype);
  std::vector<std::byte> upper(width_ * size);
  Convert(DType::kFP64, dtype, below.data(), out, width_);
  Convert(DType::kFP64, dtype, above.data(), upper.data(), width_);
  if (std::memcmp(out, upper.data(), upper.size()) == 0) return;
  const AxisTaps<mpq_class> rows = TapsOf<mpq_class>(resize_, rows_axis_, cell.row);
  const AxisTaps<mpq_class> columns = TapsOf<mpq_class>(resize_, columns_axis_, cell.column);
  for (size_t n = 0; n < width_; ++n) {
    if (std::memcmp(out + n * size, upper.data() + n * size, size) == 0) continue;
    InterruptionPoint();
    const double element = ExactElement(rows, columns, n, dtype);
    Convert(DType::kFP64, dtype, &element, out + n * size, 1);
  }
}

double ResizedTable::ExactElement(const AxisTaps<mpq_class>& rows, const AxisTaps<mpq_class>& columns, size_t n,
                                  DType dtype) const {
  mpq_class sum, along_columns;
  for (size_t y = 0; y < rows.cells.size(); ++y) {
    along_columns = 0;
    for (size_t x = 0; x < columns.cells.size(); ++x) {
      double value = 0;
      Convert(dtype_, DType::kFP64, Row(rows.cells[y], columns.cells[x]) + n * SizeOf(dtype_), &value, 1);
      along_columns += columns.weights[x] * mpq_class(value);
    }
    sum += rows.weights[y] * along_columns;
  }
  if (scale_) sum *= mpq_class(*scale_);
  return RoundFor(dtype, sum);
}

template <class Number>
void ResizedTable::FillRounded(Cell cell, DType dtype, std::byte* out) const {
  constexpr DType kNumber = std::is_same_v<Number, float> ? DType::kFP32 : DType::kFP64;
  std::vector<Number> values(width_), along_columns(width_), sums(width_);
  for (int64_t y = rows_.begin[cell.row]; y < rows_.begin[cell.row + 1]; ++y) {
    const auto row_weight = static_cast<Number>(rows_.weights[y]);
    std::fill(along_columns.begin(), along_columns.end(), 0);
    for (int64_t x = columns_.begin[cell.column]; x < columns_.begin[cell.column + 1]; ++x) {
      const auto column_weight = static_cast<Number>(columns_.weights[x]);
      Convert(dtype_, kNumber, Row(rows_.cells[y], columns_.cells[x]), values.data(), width_);
      if (resize_.operations == ResizeOperations::kGather) {
        const Number weight = row_weight * column_weight;
        for (size_t n = 0; n < width_; ++n) sums[n] += weight * values[n];
      } else if (resize_.operations == ResizeOperations::kEmbeddingBag) {
        Number weight = row_weight * column_weight;
        weight = static_cast<Number>(RoundedTo(dtype_, static_cast<float>(weight)));
        for (size_t n = 0; n < width_; ++n) sums[n] = std::fma(weight, values[n], sums[n]);
      } else {
        for (size_t n = 0; n < width_; ++n) along_columns[n] += column_weight * values[n];
      }
    }
    if (resize_.operations != ResizeOperations::kGather && resize_.operations != ResizeOperations::kEmbeddingBag) {
      for (size_t n = 0; n < width_; ++n) sums[n] += row_weight * along_columns[n];
    }
  }
  if (scale_) {
    for (Number& sum : sums) sum *= static_cast<Number>(*scale_);
  }
  if constexpr (std::is_same_v<Number, float>) {
    if (resize_.operations == ResizeOperations::kEmbeddingBag && dtype == DType::kBF16) {
      return RoundHalvesAway(sums.data(), width_, out);
    }
  }
  Convert(kNumber, dtype, sums.data(), out, width_);
}

}  // namespace posenc
