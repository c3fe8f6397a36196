#include "posenc/kernels/sincos_slow.h"

#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "posenc/base/interruption.h"
#include "posenc/exact/real.h"

namespace posenc {
namespace {

class Number {
 public:
  explicit Number(mpfr_prec_t precision) { mpfr_init2(value_, precision); }
  Number(const Number&) = delete;
  Number& operator=(const Number&) = delete;
  ~Number() { mpfr_clear(value_); }
  operator mpfr_ptr() { return value_; }  // NOLINT(google-explicit-constructor): passed as an mpfr_t

 private:
  mpfr_t value_;
};

struct Format {
  int precision;    // significant bits, the hidden one included
  int least;        // the smallest positive value is 2^least
  double overflow;  // least power of two that is too large
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFP32: return {24, -149, 0x1p128};
    case DType::kFP16: return {11, -24, 0x1p16};
    case DType::kBF16: return {8, -133, 0x1p128};
    default: return {53, -1074, std::numeric_limits<double>::infinity()};
  }
}

// Returns `value` rounded to nearest, ties to even, subnormals and infinity included.
double Round(mpfr_srcptr value, const Format& format) {
  if (mpfr_zero_p(value)) return mpfr_signbit(value) ? -0.0 : 0.0;
  const int64_t exponent = mpfr_get_exp(value);  // |value| in [2^(exponent-1), 2^exponent)
  const int64_t quantum = std::max<int64_t>(exponent - format.precision, format.least);
  if (quantum > 1024) return std::copysign(std::numeric_limits<double>::infinity(), mpfr_sgn(value));
  Number multiple(mpfr_get_prec(value));
  mpfr_mul_2si(multiple, value, -quantum, MPFR_RNDN);
  mpfr_roundeven(multiple, multiple);
  const double rounded = std::ldexp(mpfr_get_d(multiple, MPFR_RNDN), static_cast<int>(quantum));
  if (std::abs(rounded) < format.overflow) return rounded;
  return std::copysign(std::numeric_limits<double>::infinity(), rounded);
}

// Sets `rounded` and returns true if all of value*(1 +- 2^(3-precision)) rounds to one number. `value` approximates a
// number other than 0.
bool RoundIfCertain(mpfr_srcptr value, const Format& format, double& rounded) {
  if (mpfr_inf_p(value) || mpfr_zero_p(value)) {  // over- or underflow of MPFR's range, and so of the format's
    const double magnitude = mpfr_inf_p(value) ? std::numeric_limits<double>::infinity() : 0.0;
    rounded = mpfr_signbit(value) ? -magnitude : magnitude;
    return true;
  }
  const mpfr_prec_t precision = mpfr_get_prec(value);
  Number error(precision), low(precision + 8), high(precision + 8);
  mpfr_mul_2si(error, value, 3 - precision, MPFR_RNDN);
  mpfr_sub(low, value, error, MPFR_RNDN);
  mpfr_add(high, value, error, MPFR_RNDN);
  rounded = Round(low, format);
  return std::bit_cast<uint64_t>(rounded) == std::bit_cast<uint64_t>(Round(high, format));
}

// Rounds the scaled cosine or sine of an angle x below 2^-150. It is nearer to 0 than the scaled `limit`, which is 1 or
// x, by less than a 2^-300th. Returns false unless the scaled limit has at most 256 bits. The middle between two
// numbers of the format has fewer, so none is that near to the limit, and any number between gives the result.
bool RoundBelow(mpfr_srcptr limit, const std::function<int(mpfr_ptr)>& apply_scale, const Format& format,
                double& rounded) {
  Number value(256), nothing(2);
  if (mpfr_set(value, limit, MPFR_RNDN) != 0 || apply_scale(value) != 0) return false;
  mpfr_set_zero(nothing, 1);
  mpfr_prec_round(value, 320, MPFR_RNDN);
  mpfr_nexttoward(value, nothing);
  rounded = Round(value, format);
  return true;
}

CosSin RoundedSinCos(double position, double inv_freq, double scale, bool divide, DType dtype) {
  if (!divide && scale == 0) return {0.0, 0.0};
  return ScaledSinCos(position, inv_freq, dtype, [&](mpfr_ptr value) {
    return divide ? mpfr_div_d(value, value, scale, MPFR_RNDN) : mpfr_mul_d(value, value, scale, MPFR_RNDN);
  });
}

// ScaledSinCos() of an angle that is a sum of products of doubles, and exact.
CosSin ScaledSinCosOf(mpfr_srcptr angle, DType dtype, const std::function<int(mpfr_ptr)>& apply_scale) {
  const Format format = FormatOf(dtype);
  // Only an angle of zero can give an exact tie (its cosine is the scale or its inverse): an inexact scale that is
  // undecided above 4096 bits is a tie. The cosine and sine of any other rational number, times an algebraic scale, are
  // transcendental, so some precision decides them. That precision is known only for angles near 0: there
  // cos(x) = 1 - x^2/2 can be as near to a tie as x^2/2 >= 2^-4297, and so can sin(x) = x (1 - x^2/6); RoundBelow()
  // needs no such precision. Elsewhere each further bit halves the probability of being undecided.
  constexpr mpfr_prec_t kMostBits = 8192;
  CosSin result{0.0, 0.0};
  const bool zero = mpfr_zero_p(angle);
  const bool tiny = !zero && mpfr_get_exp(angle) < -150;
  Number one(2);
  mpfr_set_ui(one, 1, MPFR_RNDN);
  bool have_cos = tiny && RoundBelow(one, apply_scale, format, result.cos);
  bool have_sin = zero || (tiny && RoundBelow(angle, apply_scale, format, result.sin));
  for (mpfr_prec_t precision = 128; !have_cos || !have_sin; precision *= 2) {
    Number cos(precision);
    Number sin(precision);
    mpfr_sin_cos(sin, cos, angle, MPFR_RNDN);
    const bool exact = zero && (apply_scale(cos) == 0 || precision > 4096);
    if (!zero) apply_scale(cos);
    apply_scale(sin);
    if (!have_cos) {
      have_cos = exact || RoundIfCertain(cos, format, result.cos);
      if (exact) result.cos = Round(cos, format);
    }
    if (!have_sin) have_sin = RoundIfCertain(sin, format, result.sin);
    if (precision >= kMostBits && !(have_cos && have_sin)) {
      throw ComputationStopped(absl::InternalError(
          absl::StrCat("cos and sin of ", mpfr_get_d(angle, MPFR_RNDN), " are undecided at ", kMostBits, " bits")));
    }
  }
  return result;
}

}  // namespace

CosSin ScaledSinCos(double position, double inv_freq, DType dtype, const std::function<int(mpfr_ptr)>& apply_scale) {
  FreeMpfrCachesAtThreadEnd();
  InterruptionPoint();
  if (!std::isfinite(position) || !std::isfinite(inv_freq)) {
    return {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
  }
  Number angle(2 * std::numeric_limits<double>::digits);  // holds the product of two doubles exactly
  mpfr_set_d(angle, position, MPFR_RNDN);
  mpfr_mul_d(angle, angle, inv_freq, MPFR_RNDN);
  return ScaledSinCosOf(angle, dtype, apply_scale);
}

CosSin SinCosSlowOfDifference(const SinCosRows& work, size_t row, size_t pair) {
  FreeMpfrCachesAtThreadEnd();
  InterruptionPoint();
  constexpr mpfr_prec_t kBits = 4400;  // holds a sum of products of doubles exactly
  Number angle(kBits), from(kBits);
  mpfr_set_d(angle, work.positions[row], MPFR_RNDN);
  mpfr_mul_d(angle, angle, work.inv_freq[pair], MPFR_RNDN);
  mpfr_set_d(from, work.from_positions[row], MPFR_RNDN);
  mpfr_mul_d(from, from, work.from_inv_freq[pair], MPFR_RNDN);
  mpfr_sub(angle, angle, from, MPFR_RNDN);
  return ScaledSinCosOf(angle, work.dtype,
                        [&](mpfr_ptr value) { return mpfr_mul_d(value, value, work.scale, MPFR_RNDN); });
}

DType FirstRounding(const SinCosRows& work) {
  switch (work.frequencies) {
    case Frequencies::kExact: return work.dtype;
    case Frequencies::kFloat32: return DType::kFP32;
    case Frequencies::kFloat64: return DType::kFP64;
  }
  __builtin_unreachable();
}

CosSin SinCosSlow(const SinCosRows& work, double position, double inv_freq) {
  switch (work.frequencies) {
    case Frequencies::kExact: return RoundedSinCos(position, inv_freq, work.scale, work.divide, work.dtype);
    case Frequencies::kFloat32: {
      const double position32 = static_cast<float>(position);
      const float angle = static_cast<float>(position32 * inv_freq);  // exact, then rounded
      return RoundedSinCos(angle, 1.0, 1.0, false, DType::kFP32);
    }
    case Frequencies::kFloat64: return RoundedSinCos(position * inv_freq, 1.0, 1.0, false, DType::kFP64);
  }
  __builtin_unreachable();
}

}  // namespace posenc
