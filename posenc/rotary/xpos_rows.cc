#include "posenc/rotary/xpos_rows.h"

#include <cmath>
#include <vector>

#include "posenc/exact/real.h"
#include "posenc/kernels/convert.h"
#include "posenc/kernels/powers.h"
#include "posenc/kernels/sincos_powers.h"
#include "posenc/kernels/sincos_slow.h"

namespace posenc {
namespace {

// zeta^exponent of each column, computed from log(zeta), and a bound of its relative error.
struct ColumnPowers {
  explicit ColumnPowers(size_t columns) : values(columns), errors(columns) {}
  void Compute(const XposPlan& xpos, double exponent) {
    Powers(xpos.log_zeta.data(), exponent, values.size(), values.data(), errors.data());
  }

  std::vector<double> values, errors;
};

// zeta_i^exponent, rounded to nearest in the type F.
template <class F>
F RoundedPower(const XposPlan& xpos, size_t i, F exponent, const ColumnPowers& powers) {
  if constexpr (sizeof(F) == sizeof(float)) {
    const auto low = static_cast<float>(powers.values[i] * (1 - powers.errors[i]));
    if (low == static_cast<float>(powers.values[i] * (1 + powers.errors[i]))) return low;
  }
  return RoundedPow<F>(static_cast<F>(xpos.zeta[i]), exponent);
}

// Scales one row as kFloat32 and kFloat64 do. On entry, cos and sin are already multiplied (or divided) by a.
template <class F>
void ScaleRow(const XposPlan& xpos, double position, bool reciprocal, bool divide, ColumnPowers& powers,
              std::vector<F>& cos, std::vector<F>& sin) {
  const F exponent = (static_cast<F>(position) - static_cast<F>(xpos.centre)) / static_cast<F>(xpos.scale_base);
  if constexpr (sizeof(F) == sizeof(float)) powers.Compute(xpos, exponent);
  for (size_t i = 0; i < cos.size(); ++i) {
    F scale = RoundedPower<F>(xpos, i, exponent, powers);
    if (reciprocal) scale = F{1} / scale;
    for (F* value : {&cos[i], &sin[i]}) {
      if (*value != 0) *value = divide ? *value / scale : *value * scale;
    }
  }
}

template <class F>
void RunChain(const SinCosRows& work, DType type, const XposPlan& xpos, bool reciprocal) {
  ColumnPowers powers(work.pairs);
  std::vector<F> cos(work.pairs), sin(work.pairs);
  const size_t row_bytes = work.pairs * SizeOf(work.dtype);
  for (size_t row = 0; row < work.rows; ++row) {
    SinCosRows one = work;
    one.dtype = type;
    one.positions = work.positions + row;
    one.rows = 1;
    one.cos = cos.data();
    one.sin = sin.data();
    one.large = false;
    ComputeSinCosRows(one, 0, 1);
    ScaleRow(xpos, work.positions[row], reciprocal, work.divide, powers, cos, sin);
    Convert(type, work.dtype, cos.data(), static_cast<std::byte*>(work.cos) + row * row_bytes, work.pairs);
    Convert(type, work.dtype, sin.data(), static_cast<std::byte*>(work.sin) + row * row_bytes, work.pairs);
  }
}

// Computes one entry pair of kExact with MPFR.
CosSin SlowEntry(const SinCosRows& work, const XposPlan& xpos, bool invert, double position, size_t i) {
  if (work.scale == 0) return {0.0, 0.0};
  return ScaledSinCos(position, work.inv_freq[i], work.dtype, [&](mpfr_ptr value) {
    // 96 extra bits suffice for exponents below 2^63 in magnitude; beyond that the result is 0 or infinite anyway.
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

// MPFR computes FP64, and what the kernel cannot decide.
void RunExact(const SinCosRows& work, const XposPlan& xpos, bool invert) {
  const auto slow = [&](size_t row, size_t pair) { return SlowEntry(work, xpos, invert, work.positions[row], pair); };
  if (work.dtype != DType::kFP64) {
    return ComputeSinCosPowers({work, xpos.log_zeta.data(), xpos.centre, invert ? -xpos.scale_base : xpos.scale_base},
                               slow);
  }
  auto *cos = static_cast<double*>(work.cos), *sin = static_cast<double*>(work.sin);
  for (size_t row = 0; row < work.rows; ++row) {
    for (size_t pair = 0; pair < work.pairs; ++pair) {
      const CosSin value = slow(row, pair);
      *cos++ = value.cos;
      *sin++ = value.sin;
    }
  }
}

}  // namespace

void RunWithXpos(const SinCosRows& work, const XposPlan& xpos, bool reciprocal) {
  switch (work.frequencies) {
    // An inverse rotation divides by the scale that a forward rotation multiplies by.
    case Frequencies::kExact: return RunExact(work, xpos, reciprocal != work.divide);
    case Frequencies::kFloat32: return RunChain<float>(work, DType::kFP32, xpos, reciprocal);
    case Frequencies::kFloat64: return RunChain<double>(work, DType::kFP64, xpos, reciprocal);
  }
}

}  // namespace posenc
