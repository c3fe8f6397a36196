#include "tests/reference/sincos_oracle.h"

#include <mpfr.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace posenc {
namespace {

struct IeeeFormat {
  int precision;
  int emin;  // MPFR exponent, for significands in [0.5, 1), of the smallest subnormal
  int emax;  // MPFR exponent of the largest finite value
};

IeeeFormat IeeeFormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFP16: return {11, -23, 16};
    case DType::kBF16: return {8, -132, 128};
    case DType::kFP32: return {24, -148, 128};
    default: return {53, -1073, 1024};
  }
}

// One rounding to nearest even by MPFR's own emulation of IEEE 754 formats.
double RoundTo(DType dtype, mpfr_srcptr value) {
  const IeeeFormat format = IeeeFormatOf(dtype);
  const mpfr_exp_t old_emin = mpfr_get_emin();
  const mpfr_exp_t old_emax = mpfr_get_emax();
  mpfr_t rounded;
  mpfr_init2(rounded, format.precision);
  int ternary = mpfr_set(rounded, value, MPFR_RNDN);
  mpfr_set_emin(format.emin);
  mpfr_set_emax(format.emax);
  ternary = mpfr_check_range(rounded, ternary, MPFR_RNDN);
  mpfr_subnormalize(rounded, ternary, MPFR_RNDN);
  mpfr_set_emin(old_emin);
  mpfr_set_emax(old_emax);
  const double result = mpfr_get_d(rounded, MPFR_RNDN);
  mpfr_clear(rounded);
  return result;
}

double RoundTo(DType dtype, double value) {
  mpfr_t exact;
  mpfr_init2(exact, 53);
  mpfr_set_d(exact, value, MPFR_RNDN);
  const double result = RoundTo(dtype, exact);
  mpfr_clear(exact);
  return result;
}

// The angle is position * inv_freq - from * from_inv_freq.
OracleEntry Exact(double position, double inv_freq, double scale, bool divide, DType dtype, int bits, double from = 0,
                  double from_inv_freq = 0) {
  mpfr_t angle, subtracted, cos, sin;
  mpfr_init2(angle, from == 0 ? 106 : 4400);
  mpfr_init2(subtracted, 106);
  mpfr_init2(cos, bits);
  mpfr_init2(sin, bits);
  mpfr_set_d(angle, position, MPFR_RNDN);
  mpfr_mul_d(angle, angle, inv_freq, MPFR_RNDN);
  mpfr_set_d(subtracted, from, MPFR_RNDN);
  mpfr_mul_d(subtracted, subtracted, from_inv_freq, MPFR_RNDN);
  mpfr_sub(angle, angle, subtracted, MPFR_RNDN);
  mpfr_cos(cos, angle, MPFR_RNDN);
  mpfr_sin(sin, angle, MPFR_RNDN);
  if (divide) {
    mpfr_div_d(cos, cos, scale, MPFR_RNDN);
    mpfr_div_d(sin, sin, scale, MPFR_RNDN);
  } else {
    mpfr_mul_d(cos, cos, scale, MPFR_RNDN);
    mpfr_mul_d(sin, sin, scale, MPFR_RNDN);
  }
  OracleEntry entry{RoundTo(dtype, cos), RoundTo(dtype, sin)};
  if (mpfr_zero_p(angle)) entry.sin = 0.0;
  mpfr_clears(angle, subtracted, cos, sin, static_cast<mpfr_ptr>(nullptr));
  return entry;
}

}  // namespace

OracleEntry SinCosOracle(const SinCosRows& work, double position, double inv_freq, int bits) {
  switch (work.frequencies) {
    case Frequencies::kExact: return Exact(position, inv_freq, work.scale, work.divide, work.dtype, bits);
    case Frequencies::kFloat32: {
      const float angle = static_cast<float>(position) * static_cast<float>(inv_freq);
      const OracleEntry plain = Exact(angle, 1.0, 1.0, false, DType::kFP32, bits);
      const float a = static_cast<float>(work.scale);
      const float cos = static_cast<float>(plain.cos);
      const float sin = static_cast<float>(plain.sin);
      const float scaled_cos = work.divide ? cos / a : cos * a;
      const float scaled_sin = angle == 0 ? 0.0f : work.divide ? sin / a : sin * a;
      return {RoundTo(work.dtype, scaled_cos), RoundTo(work.dtype, scaled_sin)};
    }
    case Frequencies::kFloat64: {
      const double angle = position * inv_freq;
      const OracleEntry plain = Exact(angle, 1.0, 1.0, false, DType::kFP64, bits);
      const double scaled_cos = work.divide ? plain.cos / work.scale : plain.cos * work.scale;
      const double scaled_sin = angle == 0 ? 0.0 : work.divide ? plain.sin / work.scale : plain.sin * work.scale;
      return {RoundTo(work.dtype, scaled_cos), RoundTo(work.dtype, scaled_sin)};
    }
  }
  __builtin_unreachable();
}

OracleEntry DifferenceOracle(const SinCosRows& work, size_t row, size_t pair, int bits) {
  return Exact(work.positions[row], work.inv_freq[pair], work.scale, false, work.dtype, bits, work.from_positions[row],
               work.from_inv_freq[pair]);
}

double Element(const void* data, size_t index, DType dtype) {
  const uint8_t* bytes = static_cast<const uint8_t*>(data) + index * SizeOf(dtype);
  if (dtype == DType::kFP64) {
    double value;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  if (dtype == DType::kFP32) {
    float value;
    std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  const int significand_bits = dtype == DType::kFP16 ? 10 : 7;
  const int bias = dtype == DType::kFP16 ? 15 : 127;
  const int magnitude = bits & 0x7FFF;
  const int exponent = magnitude >> significand_bits;
  const int significand = magnitude & ((1 << significand_bits) - 1);
  double value;
  if (exponent == 2 * bias + 1) {
    value = significand == 0 ? HUGE_VAL : NAN;
  } else if (exponent == 0) {
    value = std::ldexp(significand, 1 - bias - significand_bits);
  } else {
    value = std::ldexp(significand + (1 << significand_bits), exponent - bias - significand_bits);
  }
  return bits & 0x8000 ? -value : value;
}

}  // namespace posenc
