#include "posenc/diagnose/bias_candidates.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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

// Marks the cells of a row from `begin` to `end` that differ by more than the tolerance.
void AddMisfits(const Cell& at, size_t row, size_t begin, size_t end, int64_t queries, double tolerance_ulp,
                DType dtype, const std::byte* ours, const std::byte* theirs, BiasMisfits* misfits) {
  const size_t size = SizeOf(dtype);
  for (size_t j = begin; j < end; ++j) {
    if (static_cast<double>(UlpDistance(dtype, ours + j * size, theirs + j * size)) <= tolerance_ulp) continue;
    ++misfits->cells;
    misfits->rows[row] = 1;
    misfits->distances[static_cast<int64_t>(j) - at.i + queries - 1] = 1;
  }
}

// Compares the unmasked cells of a row; `at` is the row's first cell.
void CompareRow(const Cell& at, const GivenRow& row, const FoundMask& mask, double tolerance_ulp, int64_t queries,
                DType dtype, const std::byte* ours, double* largest, BiasExplanation* explanation) {
  const std::vector<double>& values = row.values();
  const size_t keys = values.size(), size = SizeOf(dtype);
  for (size_t begin = 0, end = 0; begin < keys; begin = end) {
    while (begin < keys && mask.Hides(values[begin])) ++begin;
    for (end = begin; end < keys && !mask.Hides(values[end]);) ++end;
    const size_t cells = end - begin;
    const size_t differs = explanation->comparison.Add(dtype, ours + begin * size, row.bytes() + begin * size, cells);
    if (differs == cells) continue;
    AddMisfits(at, row.index(at), begin + differs, end, queries, tolerance_ulp, dtype, ours, row.bytes(),
               &explanation->misfits);
    for (size_t j = begin; explanation->asked && j < end; ++j) {
      const double computed = ValueOf(dtype, ours + j * size);
      if (std::fabs(computed) <= *largest) continue;
      *largest = std::fabs(computed);
      explanation->ratio = values[j] / computed;
    }
    if (explanation->first) continue;
    const size_t j = begin + differs;
    explanation->first = {{at.b, at.h, at.i, static_cast<int64_t>(j)}, ValueOf(dtype, ours + j * size), values[j]};
  }
}

}  // namespace

absl::Status Prove(const BiasEvidence& e, const FoundMask& mask, double tolerance_ulp, const Limits& limits,
                   WorkPool& pool, const Cancellation& cancelled, bool only_fits, BiasExplanation* explanation) {
  const DType dtype = ComparedAs(e.bias.dtype);
  GenerateBias call{.method = explanation->method,
                    .geometry = explanation->geometry,
                    .dtype = dtype,
                    .precision = explanation->precision};
  POSENC_ASSIGN_OR_RETURN(const BiasGeneration bias,
                          BiasGeneration::Create(std::move(call), limits, BiasGeneration::Extent::kTiles));
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
  double largest = 0;
  explanation->misfits = {0, std::vector<uint8_t>(e.batch() * e.heads() * e.queries()),
                          std::vector<uint8_t>(e.queries() + e.keys() - 1)};
  for (int64_t first = 0; first < e.queries(); first += most) {
    const int64_t count = std::min(most, e.queries() - first);
    POSENC_RETURN_IF_ERROR(bias.WriteRows(first, count, nullptr, tile.data(), pool, cancelled));
    for (int64_t b = 0; b < e.batch(); ++b) {
      POSENC_RETURN_IF_ERROR(cancelled());
      for (int64_t h = 0; h < e.heads(); ++h) {
        for (int64_t n = 0; n < count; ++n) {
          const Cell at{b, h, first + n, 0};
          row.Load(at);
          const int64_t matrix = (batched ? b * e.heads() : 0) + h;
          if (only_fits && explanation->misfits.cells > 0) return absl::OkStatus();
          CompareRow(at, row, mask, tolerance_ulp, e.queries(), dtype, tile.data() + (matrix * count + n) * row_bytes,
                     &largest, explanation);
        }
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace posenc::diagnose
