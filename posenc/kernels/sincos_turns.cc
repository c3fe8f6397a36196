#include "posenc/kernels/sincos_turns.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "posenc/base/interruption.h"
#include "posenc/exact/real.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/sincos_rows.h"

namespace posenc {
namespace {

// 2 pi as the sum of two doubles, with a relative error of 2^-107.
constexpr double kTwoPiHi = 0x1.921fb54442d18p+2, kTwoPiLo = 0x1.1a62633145c07p-52;

struct DoubleDouble {
  double hi, lo;
};

// a + b and a * b as exact sums hi + lo (the product is inexact if it is tiny).
DoubleDouble TwoSum(double a, double b) {
  const double sum = a + b, of_b = sum - a;
  return {sum, (a - (sum - of_b)) + (b - of_b)};
}
DoubleDouble TwoProduct(double a, double b) {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}

// An angle in [-pi/4, pi/4], up to rounding, and the number of quarter turns (mod 4) subtracted from it.
struct Reduced {
  DoubleDouble angle;
  int quarters;  // 0 .. 3
  double error;  // absolute error bound of the angle; infinite if unknown
};

constexpr double kUnknown = std::numeric_limits<double>::infinity();

// Counts `products`, and checks for interruption once in 65,536 of them.
Reduced Reduce(const double* factors, const double* point, size_t terms, int64_t* products) {
  double sum = 0, rest = 0, magnitude = 0, rounded = 0;
  for (size_t j = 0; j < terms; ++j) {
    InterruptionPointOfStep(++*products);
    const DoubleDouble product = TwoProduct(factors[j], point[j]);
    const bool tiny = std::abs(product.hi) < 0x1p-900 && factors[j] != 0 && point[j] != 0;
    const DoubleDouble total = TwoSum(sum, product.hi);
    sum = total.hi;
    rest += total.lo + product.lo;
    rounded += std::abs(total.lo) + std::abs(product.lo);
    magnitude += tiny ? kUnknown : std::abs(product.hi);
  }
  if (!(magnitude < 0x1p50)) return {{0, 0}, 0, kUnknown};
  // `rest` is the result of 2n additions, each with an error of at most 2^-53 * rounded; if `rounded` is zero, it is
  // exact. Subtracting the quarter turns from `sum` is exact.
  const double lost = static_cast<double>(terms) * 0x1p-51 * rounded;
  const double quarters = std::floor(4 * sum + 0.5);
  const DoubleDouble turns = TwoSum(sum - 0.25 * quarters, rest);
  const DoubleDouble angle = TwoProduct(turns.hi, kTwoPiHi);
  const double low = angle.lo + (turns.hi * kTwoPiLo + turns.lo * kTwoPiHi);
  const DoubleDouble sharp = TwoSum(angle.hi, low);
  // Four operations on numbers of at most 2^-51 |angle|, each with a relative error of 2^-53; and 2 pi < 8.
  const double error = 0x1p-100 * std::abs(sharp.hi) + 8 * lost;
  return {sharp, static_cast<int>(static_cast<int64_t>(quarters) & 3), error};
}

double RoundTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kFP32: return static_cast<float>(value);
    case DType::kFP16: return Widen<Float16>(Narrow<Float16>(value));
    case DType::kBF16: return Widen<BFloat16>(Narrow<BFloat16>(value));
    default: return value;
  }
}

// Rounds `value`, which has an absolute error of at most `error`, in place. Returns false if the result is uncertain.
bool RoundIfProven(DType dtype, double error, double& value) {
  if (dtype == DType::kFP64) return false;
  // The value is a rounded sine or cosine plus a rounded correction: a relative error of 2^-52, and the same as slack.
  error += 0x1p-51 * std::abs(value);
  const double low = RoundTo(dtype, value - error), high = RoundTo(dtype, value + error);
  value = low;
  return std::bit_cast<uint64_t>(low) == std::bit_cast<uint64_t>(high);
}

// Returns a sine or cosine by MPFR, rounded once: `function` is mpfr_sinu or mpfr_cosu. It truncates to a few more bits
// than the type has and, unless that is exact, appends a one bit (sticky bit). The result is then on the same side of
// every rounding boundary of the type as the true value.
template <class Function>
double Exactly(Function function, const Real& turns, DType dtype) {
  const int bits = dtype == DType::kFP64 ? 64 : 51;
  const RealPrecision working(bits);
  Real value;
  const bool exact = function(value.get(), turns.get(), 1, MPFR_RNDZ) == 0;
  if (mpfr_zero_p(value.get()) != 0) return 0.0;
  if (!exact) {
    mpfr_prec_round(value.get(), bits + 1, MPFR_RNDZ);
    mpfr_sgn(value.get()) > 0 ? mpfr_nextabove(value.get()) : mpfr_nextbelow(value.get());
  }
  return RoundTo(dtype, mpfr_get_d(value.get(), MPFR_RNDN));
}

// Slow path: computes one entry with MPFR. Sums of products of doubles have less than 4300 bits, so `turns` is exact.
void Slow(const double* factors, const double* point, size_t terms, DType dtype, double& cos, double& sin) {
  const RealPrecision exact(4400);
  Real turns(0.0), product;
  for (size_t j = 0; j < terms; ++j) {
    if (j % 64 == 0) InterruptionPoint();
    mpfr_set_d(product.get(), factors[j], MPFR_RNDN);
    mpfr_mul_d(product.get(), product.get(), point[j], MPFR_RNDN);
    mpfr_add(turns.get(), turns.get(), product.get(), MPFR_RNDN);
  }
  cos = Exactly(mpfr_cosu, turns, dtype);
  sin = Exactly(mpfr_sinu, turns, dtype);
}

}  // namespace

void ComputeSinCosTurns(const SinCosTurns& work) {
  constexpr size_t kBlock = 128;
  Reduced reduced[kBlock];
  double angles[kBlock], cos[kBlock], sin[kBlock];
  const double one = 1.0;
  const size_t size = SizeOf(work.dtype);
  int64_t products = 0;
  for (size_t begin = 0; begin < work.pairs; begin += kBlock) {
    const size_t count = std::min(kBlock, work.pairs - begin);
    const double* factors = work.factors + begin * work.terms;
    for (size_t k = 0; k < count; ++k) {
      reduced[k] = Reduce(factors + k * work.terms, work.point, work.terms, &products);
      angles[k] = reduced[k].angle.hi;
    }
    // Computes correctly rounded cosines and sines of the angles' leading parts.
    ComputeSinCosRows(SinCosRows{.frequencies = Frequencies::kFloat64,
                                 .dtype = DType::kFP64,
                                 .positions = &one,
                                 .inv_freq = angles,
                                 .rows = 1,
                                 .pairs = count,
                                 .cos = cos,
                                 .sin = sin},
                      0, 1);
    for (size_t k = 0; k < count; ++k) {
      const Reduced& r = reduced[k];
      double c = cos[k] - r.angle.lo * sin[k], s = sin[k] + r.angle.lo * cos[k];
      if (r.quarters % 2 == 1) std::swap(c, s);
      if (r.quarters == 1 || r.quarters == 2) c = -c;
      if (r.quarters >= 2) s = -s;
      c += 0.0;  // no -0
      s += 0.0;
      if (!RoundIfProven(work.dtype, r.error, c) || !RoundIfProven(work.dtype, r.error, s)) {
        Slow(factors + k * work.terms, work.point, work.terms, work.dtype, c, s);
      }
      cos[k] = c;
      sin[k] = s;
    }
    Convert(DType::kFP64, work.dtype, cos, work.cos + begin * size, count);
    Convert(DType::kFP64, work.dtype, sin, work.sin + begin * size, count);
  }
}

}  // namespace posenc
