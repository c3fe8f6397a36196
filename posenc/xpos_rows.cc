// Ziv's test as in docs/exact-tables.md, with doubles: a value of proven error is rounded at both ends of its interval,
// and what does not round to one number is computed by MPFR.
#include "posenc/xpos_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "posenc/kernels/convert.h"
#include "posenc/kernels/sincos_slow.h"
#include "posenc/real.h"

namespace posenc {
namespace {

// e^x with a relative error below 4u (u = 2^-53) for |x| <= 700; not a number beyond.
double Exp(double x) {
  constexpr double kPerLn2 = 1.44269504088896338700, kLn2Hi = 6.93147180369123816490e-01,
                   kLn2Lo = 1.90821492927058770002e-10;  // kLn2Hi has 33 bits: n * kLn2Hi is exact
  if (!(std::abs(x) <= 700)) return std::numeric_limits<double>::quiet_NaN();
  const double n = std::nearbyint(x * kPerLn2);
  const double r = (x - n * kLn2Hi) - n * kLn2Lo;  // |r| < 0.347: the first term left out is below 2^-57
  constexpr double kReciprocal[] = {0,       1.0,     1.0 / 2, 1.0 / 3,  1.0 / 4,  1.0 / 5,  1.0 / 6,
                                    1.0 / 7, 1.0 / 8, 1.0 / 9, 1.0 / 10, 1.0 / 11, 1.0 / 12, 1.0 / 13};
  double sum = 1.0;
  for (int k = 13; k >= 1; --k) sum = 1.0 + r * kReciprocal[k] * sum;
  return sum * std::bit_cast<double>(static_cast<int64_t>(n + 1023) << 52);  // 2^n: |n| < 1011
}

// base^exponent by its logarithm, and a bound of the relative error: log_base and the exponent may be wrong by u and
// 2u.
struct Power {
  double value;
  double error;
};
Power PowerOf(double log_base, double exponent) {
  const double x = log_base * exponent;
  // 4u|x| from the product's factors and rounding, 4u from Exp; the same again as slack, and for what multiplies it.
  return {Exp(x), (std::abs(x) + 8) * 0x1p-50};
}

// RN(zeta^exponent) in the type F.
template <class F>
F RoundedPower(double zeta, double log_zeta, F exponent) {
  if constexpr (sizeof(F) == sizeof(float)) {
    const Power power = PowerOf(log_zeta, exponent);
    const auto low = static_cast<float>(power.value * (1 - power.error));
    if (low == static_cast<float>(power.value * (1 + power.error))) return low;
  }
  return RoundedPow<F>(static_cast<F>(zeta), exponent);
}

// The chain of kFloat32 and kFloat64: `values` hold cos * a (or / a) of one row.
template <class F>
void ScaleRow(const XposPlan& xpos, double position, bool reciprocal, bool divide, std::vector<F>& cos,
              std::vector<F>& sin) {
  const F exponent = (static_cast<F>(position) - static_cast<F>(xpos.centre)) / static_cast<F>(xpos.scale_base);
  for (size_t i = 0; i < cos.size(); ++i) {
    F scale = RoundedPower<F>(xpos.zeta[i], xpos.log_zeta[i], exponent);
    if (reciprocal) scale = F{1} / scale;
    for (F* value : {&cos[i], &sin[i]}) {
      if (*value != 0) *value = divide ? *value / scale : *value * scale;
    }
  }
}

template <class F>
void RunChain(const SinCosRows& work, DType type, const XposPlan& xpos, bool reciprocal) {
  std::vector<F> cos(work.pairs), sin(work.pairs);
  const size_t row_bytes = work.pairs * SizeOf(work.dtype);
  for (size_t row = 0; row < work.rows; ++row) {
    SinCosRows one = work;
    one.dtype = type;
    one.positions = work.positions + row;
    one.rows = 1;
    one.cos = cos.data();
    one.sin = sin.data();
    Run(one, 0, 1);
    ScaleRow(xpos, work.positions[row], reciprocal, work.divide, cos, sin);
    Convert(type, work.dtype, cos.data(), static_cast<std::byte*>(work.cos) + row * row_bytes, work.pairs);
    Convert(type, work.dtype, sin.data(), static_cast<std::byte*>(work.sin) + row * row_bytes, work.pairs);
  }
}

// One entry pair of kExact by MPFR.
CosSin SlowEntry(const SinCosRows& work, const XposPlan& xpos, bool invert, double position, size_t i) {
  if (work.scale == 0) return {0.0, 0.0};
  return ScaledSinCos(position, work.inv_freq[i], work.dtype, [&](mpfr_ptr value) {
    // The exponent is below 2^63 in size or the result is 0 or infinite anyhow: 96 bits more make up for it.
    const RealPrecision working(mpfr_get_prec(value) + 96);
    const Real d(static_cast<double>(xpos.dim));
    const Real zeta = (Real(static_cast<double>(10 * i)) + Real(2.0) * d) / (Real(7.0) * d);
    const Real exponent = (Real(position) - Real(xpos.centre)) / Real(xpos.scale_base);
    const Real power = Pow(zeta, invert ? Real(0.0) - exponent : exponent);
    const Real scale = work.divide ? power / Real(work.scale) : power * Real(work.scale);
    const bool exact = exponent == Real(0.0) && !work.divide;
    return mpfr_mul(value, value, scale.get(), MPFR_RNDN) == 0 && exact ? 0 : 1;
  });
}

// Both ends of an entry's interval, rounded to work.dtype; where they differ, or the bound does not hold, by MPFR.
void RunExact(const SinCosRows& work, const XposPlan& xpos, bool invert) {
  const size_t pairs = work.pairs, size = SizeOf(work.dtype);
  struct Entries {
    std::vector<double> value, low, high;
    std::vector<std::byte> rounded_low, rounded_high;
  };
  Entries cos, sin;
  for (Entries* e : {&cos, &sin}) {
    for (auto* v : {&e->value, &e->low, &e->high}) v->resize(pairs);
    for (auto* v : {&e->rounded_low, &e->rounded_high}) v->resize(pairs * size);
  }
  for (size_t row = 0; row < work.rows; ++row) {
    const double position = work.positions[row];
    Run(SinCosRows{.frequencies = Frequencies::kExact,
                   .dtype = DType::kFP64,
                   .positions = &position,
                   .inv_freq = work.inv_freq,
                   .rows = 1,
                   .pairs = pairs,
                   .cos = cos.value.data(),
                   .sin = sin.value.data()},
        0, 1);
    const double exponent = (position - xpos.centre) / xpos.scale_base;
    for (size_t i = 0; i < pairs; ++i) {
      const Power power = PowerOf(xpos.log_zeta[i], invert ? -exponent : exponent);
      for (Entries* e : {&cos, &sin}) {
        const double scaled =
            work.divide ? e->value[i] * power.value / work.scale : e->value[i] * power.value * work.scale;
        // The bound is relative: nothing may have underflowed on the way, but for a sine of angle zero.
        const double size_of = std::abs(scaled);
        const bool usable = e->value[i] == 0 || (size_of > 0x1p-900 && size_of < 0x1p900);
        const double error = usable ? scaled * power.error : std::numeric_limits<double>::quiet_NaN();
        e->low[i] = scaled - error;
        e->high[i] = scaled + error;
      }
    }
    for (Entries* e : {&cos, &sin}) {
      Convert(DType::kFP64, work.dtype, e->low.data(), e->rounded_low.data(), pairs);
      Convert(DType::kFP64, work.dtype, e->high.data(), e->rounded_high.data(), pairs);
    }
    const auto proven = [&](const Entries& e, size_t i) {
      return !std::isnan(e.low[i]) && std::memcmp(&e.rounded_low[i * size], &e.rounded_high[i * size], size) == 0;
    };
    for (size_t i = 0; i < pairs; ++i) {
      if (proven(cos, i) && proven(sin, i)) continue;
      const CosSin slow = SlowEntry(work, xpos, invert, position, i);
      Convert(DType::kFP64, work.dtype, &slow.cos, &cos.rounded_low[i * size], 1);
      Convert(DType::kFP64, work.dtype, &slow.sin, &sin.rounded_low[i * size], 1);
    }
    std::memcpy(static_cast<std::byte*>(work.cos) + row * pairs * size, cos.rounded_low.data(), pairs * size);
    std::memcpy(static_cast<std::byte*>(work.sin) + row * pairs * size, sin.rounded_low.data(), pairs * size);
  }
}

}  // namespace

void RunWithXpos(const SinCosRows& work, const XposPlan& xpos, bool reciprocal) {
  switch (work.frequencies) {
    // An inverse rotation divides by what a forward one multiplies by.
    case Frequencies::kExact: return RunExact(work, xpos, reciprocal != work.divide);
    case Frequencies::kFloat32: return RunChain<float>(work, DType::kFP32, xpos, reciprocal);
    case Frequencies::kFloat64: return RunChain<double>(work, DType::kFP64, xpos, reciprocal);
  }
}

}  // namespace posenc
