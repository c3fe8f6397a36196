// Digests of tables of cosines and sines.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "posenc/kernels/sincos_rows.h"
#include "tests/digests/digest_case.h"
#include "tests/digests/digest_inputs.h"

namespace posenc {
namespace {

struct SinCosCase {
  Frequencies frequencies;
  DType dtype;
  std::string positions;
  size_t rows;
  size_t pairs;
  double scale;
  bool divide;
  double first, step;  // numbers in positions "first+n*step"
};

int SignificantBits(DType dtype) {
  return dtype == DType::kFP64 ? 53 : dtype == DType::kFP32 ? 24 : dtype == DType::kFP16 ? 11 : 8;
}

double Position(const SinCosCase& c, size_t row) {
  static constexpr double kExtremes[] = {0.0,   -0.0, 1e300, -1e300, 5e-324, 1.7976931348623157e308,
                                         -1e-6, 1e15, 1e20,  -1e-300};
  const uint64_t random = Random(1, row);
  if (c.positions == "count") return static_cast<double>(row);
  if (c.positions == "31-bits") return static_cast<double>(random >> 33);
  if (c.positions == "53-bits") return static_cast<double>(random >> 11);
  // Odd, and one bit too long for the type: times a power of two it is halfway between two of the type's values.
  if (c.positions == "middles") return std::ldexp(1, std::min(SignificantBits(c.dtype), 52)) + 1 + 2.0 * row;
  if (c.positions == "extremes") return kExtremes[row];
  if (c.step != 0) return c.first + static_cast<double>(row) * c.step;
  return RandomReal(1, row, -40, 86);
}

double InvFreq(const SinCosCase& c, size_t pair) {
  static constexpr double kExtremes[] = {1.0, 0.0, 0x1p-149, 0.5, 0x1p-20, 0x1p100, 5e-324, 1e-310, 1e300};
  if (c.positions == "middles") return std::ldexp(1, -static_cast<int>(pair) - 8);
  if (c.positions == "extremes") return kExtremes[pair];
  // Below 1, with any mantissa of the frequencies' type.
  const uint64_t mantissa = Random(2, pair) >> 12;
  const uint64_t kept = c.frequencies == Frequencies::kFloat32 ? mantissa >> 29 << 29 : mantissa;
  return std::bit_cast<double>((1022 - pair % 40) << 52 | kept);
}

Block RunSinCos(const SinCosCase& c) {
  std::vector<double> positions(c.rows), inv_freq(c.pairs);
  for (size_t row = 0; row < c.rows; ++row) positions[row] = Position(c, row);
  for (size_t pair = 0; pair < c.pairs; ++pair) inv_freq[pair] = InvFreq(c, pair);
  const size_t entries = c.rows * c.pairs;
  Block out(2 * entries * SizeOf(c.dtype));
  const SinCosRows work = {.frequencies = c.frequencies,
                           .dtype = c.dtype,
                           .positions = positions.data(),
                           .inv_freq = inv_freq.data(),
                           .rows = c.rows,
                           .pairs = c.pairs,
                           .scale = c.scale,
                           .divide = c.divide,
                           .cos = out.data(),
                           .sin = out.data() + entries * SizeOf(c.dtype)};
  ComputeSinCosRows(work, 0, c.rows);
  MakeNansEqual(c.dtype, out.data(), 2 * entries);
  return out;
}

void Add(const SinCosCase& c, std::vector<Case>& cases) {
  cases.push_back({fmt::format("frequencies={} dtype={} positions={} rows={} pairs={} scale={} divide={:d}",
                               Name(c.frequencies), Name(c.dtype), c.positions, c.rows, c.pairs, c.scale, c.divide),
                   [c] { return RunSinCos(c); }});
}

// Rows that form one run, and some whose spacing only looks equal.
void AddRuns(std::vector<Case>& cases) {
  static constexpr double kRuns[][2] = {{0, 1},   {-40, 1},  {1048576, 1}, {2147483648, 1},      {-7.5, 0.25},
                                        {60, -1}, {1e15, 1}, {123456, 64}, {35184372088832, 32}, {0, 0.1}};
  for (const auto& [first, step] : kRuns) {
    for (const DType dtype : kTensorTypes) {
      const size_t n = cases.size();
      SinCosCase c = {.frequencies = Frequencies::kExact, .dtype = dtype, .first = first, .step = step};
      c.positions = fmt::format("{}+n*{}", first, step);
      c.rows = Turn<size_t>(n, {32, 45, 77, 64});
      c.pairs = Turn<size_t>(n, {1, 3, 8, 17, 33});
      c.scale = Turn<double>(n, {1, 1.1386294361119891, 1, -3.75, 0.1, 3e38, 1e-40});
      c.divide = n % 5 == 4;
      Add(c, cases);
    }
  }
}

std::vector<Case> SinCosCases() {
  std::vector<Case> cases;
  for (const char* positions : {"count", "31-bits", "53-bits", "reals", "middles", "extremes"}) {
    for (const Frequencies frequencies : kArithmetics) {
      for (const DType dtype : kTypes) {
        for (int repeat = 0; repeat < 3; ++repeat) {
          const size_t n = cases.size();
          SinCosCase c = {.frequencies = frequencies, .dtype = dtype, .positions = positions};
          c.rows = 3;
          c.pairs = Turn<size_t>(n, {1, 2, 3, 5, 7, 9, 15, 17, 31, 33, 40});
          if (c.positions == "extremes") {
            if (repeat > 0) continue;
            c.rows = 10;
            c.pairs = frequencies == Frequencies::kFloat32 ? 6 : 9;  // the first six are float32 numbers
          } else if (n % 24 == 0) {
            c.rows = 1;
            c.pairs = 300;
          }
          c.scale = Turn<double>(n, {1, 1.1386294361119891, 1, -3.75, 0.1, 3e38, 1e-40});
          c.divide = n % 5 == 4;
          Add(c, cases);
        }
      }
    }
  }
  AddRuns(cases);
  return cases;
}

}  // namespace

TEST_P(DigestTest, SinCosRows) { Check("sincos_rows", SinCosCases()); }

}  // namespace posenc
