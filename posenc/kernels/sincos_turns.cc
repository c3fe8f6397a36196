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

// A sum of products is `sum` + `rest`, up to an error of `lost`. Infinite `magnitude`: of an unknown one.
struct Sum {
  double sum, rest, lost, magnitude;
};

// Counts `products`, and checks for interruption once in 65,536 of them.
Sum Add(const double* factors, const double* point, size_t terms, int64_t* products) {
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
  // `rest` is the result of 2n additions, each with an error of at most 2^-53 * rounded; if `rounded` is zero, it is
  // exact.
  return {sum, rest, static_cast<double>(terms) * 0x1p-51 * rounded, magnitude};
}

Reduced ReduceTurns(const Sum& added) {
  const auto& [sum, rest, lost, magnitude] = added;
  if (!(magnitude < 0x1p50)) return {{0, 0}, 0, kUnknown};
  // Subtracting the quarter turns from `sum` is exact.
  const double quarters = std::floor(4 * sum + 0.5);
  const DoubleDouble turns = TwoSum(sum - 0.25 * quarters, rest);
  const DoubleDouble angle = TwoProduct(turns.hi, kTwoPiHi);
  const double low = angle.lo + (turns.hi * kTwoPiLo + turns.lo * kTwoPiHi);
  const DoubleDouble sharp = TwoSum(angle.hi, low);
  // Four operations on numbers of at most 2^-51 |angle|, each with a relative error of 2^-53; and 2 pi < 8.
  const double error = 0x1p-100 * std::abs(sharp.hi) + 8 * lost;
  return {sharp, static_cast<int>(static_cast<int64_t>(quarters) & 3), error};
}

// Radians are not reduced: the cosine and sine of the leading part do that. The trailing part lo is below 2^-32, and
// its cosine is taken for 1, its sine for lo.
Reduced ReduceRadians(const Sum& added) {
  if (!(added.magnitude < 0x1p20)) return {{0, 0}, 0, kUnknown};
  const DoubleDouble angle = TwoSum(added.sum, added.rest);
  return {angle, 0, added.lost + angle.lo * angle.lo};
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

// Returns a sine or cosine by MPFR, rounded once: function(result, angle, rounding) is MPFR's. It truncates to a few
// more bits than the type has and, unless that is exact, appends a one bit (sticky bit). The result is then on the same
// side of every rounding boundary of the type as the true value.
template <class Function>
double Exactly(Function function, const Real& angle, DType dtype) {
  const int bits = dtype == DType::kFP64 ? 64 : 51;
  const RealPrecision working(bits);
  Real value;
  const bool exact = function(value.get(), angle.get(), MPFR_RNDZ) == 0;
  if (mpfr_zero_p(value.get()) != 0) return 0.0;
  if (!exact) {
    mpfr_prec_round(value.get(), bits + 1, MPFR_RNDZ);
    mpfr_sgn(value.get()) > 0 ? mpfr_nextabove(value.get()) : mpfr_nextbelow(value.get());
  }
  return RoundTo(dtype, mpfr_get_d(value.get(), MPFR_RNDN));
}

// Slow path: computes one entry with MPFR. Sums of products of doubles have less than 4300 bits, so `sum` is exact.
void Slow(const double* factors, const SinCosTurns& work, double& cos, double& sin) {
  const RealPrecision exact(4400);
  Real sum(0.0), product;
  for (size_t j = 0; j < work.terms; ++j) {
    if (j % 64 == 0) InterruptionPoint();
    mpfr_set_d(product.get(), factors[j], MPFR_RNDN);
    mpfr_mul_d(product.get(), product.get(), work.point[j], MPFR_RNDN);
    mpfr_add(sum.get(), sum.get(), product.get(), MPFR_RNDN);
  }
  const auto with = [&work](auto radians, auto turns) {
    return [=, &work](mpfr_ptr value, mpfr_srcptr angle, mpfr_rnd_t rounding) {
      return work.radians ? radians(value, angle, rounding) : turns(value, angle, 1, rounding);
    };
  };
  cos = Exactly(with(mpfr_cos, mpfr_cosu), sum, work.dtype);
  sin = Exactly(with(mpfr_sin, mpfr_sinu), sum, work.dtype);
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
      const Sum sum = Add(factors + k * work.terms, work.point, work.terms, &products);
      reduced[k] = work.radians ? ReduceRadians(sum) : ReduceTurns(sum);
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
      // Radians: near a zero of one of them, its two parts can cancel. Turns: the angle is small, so they cannot.
      const double of_cos = work.radians ? 0x1p-51 * (std::abs(cos[k]) + std::abs(r.angle.lo)) : 0;
      const double of_sin = work.radians ? 0x1p-51 * (std::abs(sin[k]) + std::abs(r.angle.lo)) : 0;
      if (r.quarters % 2 == 1) std::swap(c, s);
      if (r.quarters == 1 || r.quarters == 2) c = -c;
      if (r.quarters >= 2) s = -s;
      c += 0.0;  // no -0
      s += 0.0;
      if (!RoundIfProven(work.dtype, r.error + of_cos, c) || !RoundIfProven(work.dtype, r.error + of_sin, s)) {
        Slow(factors + k * work.terms, work, c, s);
      }
      cos[k] = c;
      sin[k] = s;
    }
    Convert(DType::kFP64, work.dtype, cos, work.cos + begin * size, count);
    Convert(DType::kFP64, work.dtype, sin, work.sin + begin * size, count);
  }
}

}  // namespace posenc
