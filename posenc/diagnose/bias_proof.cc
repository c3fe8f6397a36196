#include "posenc/diagnose/bias_candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/bias/generate_bias.h"
#include "posenc/diagnose/comparison.h"
#include "posenc/kernels/convert.h"

namespace posenc::diagnose {
namespace {

// A row of the given bias in the type in which it is compared. Every zero is +0, as in the methods' results.
class GivenRow {
 public:
  explicit GivenRow(const BiasEvidence& evidence)
      : evidence_(evidence),
        dtype_(ComparedAs(evidence.bias.dtype)),
        values_(evidence.keys()),
        narrow_(evidence.keys()),
        bytes_(evidence.keys() * SizeOf(dtype_)) {}

  void Load(const Cell& at) {
    evidence_.Load(at.b, at.h, at.i, values_.data());
    for (size_t j = 0; j < values_.size(); ++j) {
      narrow_[j] = static_cast<float>(values_[j] / evidence_.divisor) + 0.0f;
    }
    Convert(DType::kFP32, dtype_, narrow_.data(), bytes_.data(), narrow_.size());
  }
  size_t index(const Cell& at) const { return (at.b * evidence_.heads() + at.h) * evidence_.queries() + at.i; }
  const std::vector<double>& values() const { return values_; }
  const std::byte* bytes() const { return bytes_.data(); }

 private:
  const BiasEvidence& evidence_;
  const DType dtype_;
  std::vector<double> values_;
  std::vector<float> narrow_;
  std::vector<std::byte> bytes_;
};

class RowComparison {
 public:
  RowComparison(const BiasEvidence& e, const FoundMask& mask, const BiasCall& call,
                const std::function<void(const BiasDifference&)>& on_misfit, BiasExplanation* explanation)
      : mask_(mask), call_(call), dtype_(ComparedAs(e.bias.dtype)), on_misfit_(on_misfit), found_(*explanation) {
    found_.misfits = {.rows = std::vector<uint8_t>(e.batch() * e.heads() * e.queries())};
  }

  // Compares the unmasked cells of a row; `at` is the row's first cell.
  void Add(const Cell& at, const GivenRow& row, const std::byte* ours) {
    const std::vector<double>& values = row.values();
    const size_t keys = values.size(), size = SizeOf(dtype_);
    misfits_.clear();
    for (size_t begin = 0, end = 0; begin < keys; begin = end) {
      while (begin < keys && mask_.Hides(values[begin])) ++begin;
      for (end = begin; end < keys && !mask_.Hides(values[end]);) ++end;
      const size_t cells = end - begin;
      const size_t differs = found_.comparison.Add(dtype_, ours + begin * size, row.bytes() + begin * size, cells);
      if (differs == cells) continue;
      for (size_t j = begin + differs; j < end; ++j) {
        if (Ulp(row, ours, j) > call_.tolerance_ulp) misfits_.push_back(j);
      }
      for (size_t j = begin; found_.asked && j < end; ++j) {
        const double computed = ValueOf(dtype_, ours + j * size);
        if (std::fabs(computed) <= largest_) continue;
        largest_ = std::fabs(computed);
        found_.ratio = values[j] / computed;
      }
      if (found_.first) continue;
      const size_t j = begin + differs;
      found_.first = {{at.b, at.h, at.i, static_cast<int64_t>(j)}, ValueOf(dtype_, ours + j * size), values[j]};
    }
    if (misfits_.empty()) return;
    if (found_.asked && IsShifted(row, ours)) {
      ++found_.misfits.shifted_rows;
      if (call_.up_to_softmax) return;
    } else {
      ++found_.misfits.other_rows;
    }
    found_.misfits.cells += static_cast<int64_t>(misfits_.size());
    found_.misfits.rows[row.index(at)] = 1;
    for (const size_t j : misfits_) {
      on_misfit_({{at.b, at.h, at.i, static_cast<int64_t>(j)}, ValueOf(dtype_, ours + j * size), values[j]});
    }
  }

  // False: the tolerance hides most of what is shifted.
  bool ShowsShifts() const { return vague_ <= shaped_; }

 private:
  double Ulp(const GivenRow& row, const std::byte* ours, size_t j) const {
    const size_t at = j * SizeOf(dtype_);
    return static_cast<double>(UlpDistance(dtype_, ours + at, row.bytes() + at));
  }
  // True if one constant is the difference of all cells, within the tolerance at each cell's magnitude.
  bool IsShifted(const GivenRow& row, const std::byte* ours) {
    const double ulp = dtype_ == DType::kFP32 ? 0x1p-23 : dtype_ == DType::kFP16 ? 0x1p-10 : 0x1p-7;
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    double low = -kInfinity, high = kInfinity, least = kInfinity, most = -kInfinity, widest = 0;
    for (size_t j = 0; j < row.values().size(); ++j) {
      if (mask_.Hides(row.values()[j])) continue;
      const double computed = ValueOf(dtype_, ours + j * SizeOf(dtype_)),
                   given = ValueOf(dtype_, row.bytes() + j * SizeOf(dtype_));
      const double bound = call_.tolerance_ulp * ulp * std::max(std::fabs(computed), std::fabs(given));
      low = std::max(low, given - computed - bound);
      high = std::min(high, given - computed + bound);
      least = std::min(least, computed), most = std::max(most, computed);
      widest = std::max(widest, bound);
    }
    if (low > high) return false;
    if (most > least) ++(most - least > 4 * widest ? shaped_ : vague_);
    return true;
  }

  const FoundMask& mask_;
  const BiasCall& call_;
  const DType dtype_;
  const std::function<void(const BiasDifference&)>& on_misfit_;
  BiasExplanation& found_;
  std::vector<size_t> misfits_;
  double largest_ = 0;
  int64_t shaped_ = 0, vague_ = 0;  // rows that are shifted, and those of which the tolerance hides the shape
};

}  // namespace

absl::Status Prove(const BiasEvidence& e, const FoundMask& mask, const BiasCall& call, BiasExplanation* explanation,
                   const std::function<void(const BiasDifference&)>& on_misfit) {
  const DType dtype = ComparedAs(e.bias.dtype);
  GenerateBias wanted{.method = explanation->method,
                      .geometry = explanation->geometry,
                      .dtype = dtype,
                      .precision = explanation->precision};
  if (std::holds_alternative<ForgetGateSettings>(wanted.method.settings)) wanted.mask = Mask{.causal = true};
  POSENC_ASSIGN_OR_RETURN(const BiasGeneration bias,
                          BiasGeneration::Create(std::move(wanted), call.limits, BiasGeneration::Extent::kTiles));
  explanation->method = bias.method();
  std::vector<int64_t> shape = bias.shape().shape;
  const bool batched = shape.size() == 4;
  if (batched && shape[0] != e.batch()) {
    return InvalidArgument("MISMATCH", "bias.shape", ToString(e.bias.shape),
                           fmt::format("must have B {}, the batch rows of the method", shape[0]));
  }
  const size_t row_bytes = e.keys() * SizeOf(dtype);
  const int64_t matrices = (batched ? e.batch() : 1) * e.heads();
  constexpr int64_t kTileBytes = 1 << 20;
  const int64_t most = std::max<int64_t>(1, kTileBytes / (matrices * static_cast<int64_t>(row_bytes)));
  std::vector<std::byte> tile(matrices * std::min(most, e.queries()) * row_bytes);
  GivenRow row(e);
  RowComparison comparison(e, mask, call, on_misfit, explanation);
  for (int64_t first = 0; first < e.queries(); first += most) {
    const int64_t count = std::min(most, e.queries() - first);
    POSENC_RETURN_IF_ERROR(bias.WriteRows(first, count, nullptr, tile.data(), call.pool, call.cancelled));
    for (int64_t b = 0; b < e.batch(); ++b) {
      POSENC_RETURN_IF_ERROR(call.cancelled());
      for (int64_t h = 0; h < e.heads(); ++h) {
        for (int64_t n = 0; n < count; ++n) {
          const Cell at{b, h, first + n, 0};
          row.Load(at);
          const int64_t matrix = (batched ? b * e.heads() : 0) + h;
          if (call.only_fits && explanation->misfits.cells > 0) return absl::OkStatus();
          comparison.Add(at, row, tile.data() + (matrix * count + n) * row_bytes);
        }
      }
    }
  }
  if (comparison.ShowsShifts()) return absl::OkStatus();
  BiasMisfits& misfits = explanation->misfits;
  misfits.other_rows += std::exchange(misfits.shifted_rows, 0);
  if (!call.up_to_softmax) return absl::OkStatus();
  BiasCall exactly = call;
  exactly.up_to_softmax = false;
  explanation->comparison = Comparison();
  return Prove(e, mask, exactly, explanation, on_misfit);
}

}  // namespace posenc::diagnose
