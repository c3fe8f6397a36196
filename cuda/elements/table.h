// One entry of a table of cosines and sines: the recipes of posenc/kernels/sincos_rows.h, with Ziv's test as in
// sincos_rows.cc. Entries that pass the test (proven) are correctly rounded. MPFR computes the others on the CPU.
//
// An entry is Finished(recipe, first), where `first` comes from FirstRounded or, if that is unproven, from MPFR.
#pragma once

#include "cuda/elements/formats.h"
#include "cuda/elements/sincos.h"

namespace posenc::cuda {

// Constants for all entries of a table. TableArguments in cuda/launch.h documents the numbers.
struct TableRecipe {
  posenc_dtype dtype;
  posenc_frequencies frequencies;
  DoubleDouble first_scale;  // applied before the first rounding
  bool scale_in_range;
  double zero_cos;
  double scale;  // applied after the first rounding
  bool divide;
  bool negate_sin;
};

struct Entry {
  double cos;
  double sin;
};

// True if the first rounding is to float64.
POSENC_ELEMENT bool IsWide(posenc_frequencies frequencies, posenc_dtype dtype) {
  return frequencies == POSENC_FLOAT64 || (frequencies == POSENC_EXACT && dtype == POSENC_FP64);
}

POSENC_ELEMENT double PositionIn(posenc_frequencies frequencies, double position) {
  return frequencies == POSENC_FLOAT32 ? static_cast<float>(position) : position;
}

// Format of a first rounding that is not to float64.
struct NarrowFormat {
  double least_normal;
  double to_quantum;  // 1.5 * 2^52 / 2^(significant bits - 1)
};
template <class Format>
POSENC_ELEMENT NarrowFormat NarrowFormatOf(Format) {
  return {kLeastNormal<Format>, 1.5 * kDroppedBits<Format>};
}
POSENC_ELEMENT NarrowFormat FirstFormat(const TableRecipe& recipe) {
  if (recipe.frequencies == POSENC_EXACT && recipe.dtype == POSENC_FP16) return NarrowFormatOf(Float16());
  if (recipe.frequencies == POSENC_EXACT && recipe.dtype == POSENC_BF16) return NarrowFormatOf(BFloat16());
  return NarrowFormatOf(Float32());
}

// Ziv's test: rounds `value` in place. Returns true if everything within the error bound rounds to the same number.
POSENC_ELEMENT bool RoundIfProven(const NarrowFormat& format, double turn_error, double& value) {
  const double magnitude = fabs(value);
  const double error = fma(magnitude, kNarrowRelative, turn_error);
  const double power_of_two = BitCast<double>(BitCast<uint64_t>(value) & 0x7ff0000000000000);
  // Adding `shift` rounds off all bits below the format's last bit at this magnitude.
  const double shift = (power_of_two > format.least_normal ? power_of_two : format.least_normal) * format.to_quantum;
  const double rounded = (value - error) + shift - shift;
  // For an error this small, one shift is right for the whole interval, and both ends have the sign of `value`.
  const bool usable = magnitude > turn_error * 0x1p31;
  const bool proven = usable && rounded == (value + error) + shift - shift;
  value = copysign(rounded, value);
  return proven;
}
POSENC_ELEMENT bool RoundIfProven(double turn_error, DoubleDouble value, double& result) {
  const double error = fma(fabs(value.hi), kWideRelative, turn_error);
  result = value.hi + (value.lo - error);
  return result == value.hi + (value.lo + error);
}

// Computes the first rounded values. Returns false if they are an unproven guess. `position` is a result of PositionIn,
// kWide that of IsWide.
template <bool kWide>
POSENC_ELEMENT bool FirstRounded(const TableRecipe& recipe, double position, double inv_freq, Entry& entry) {
  DoubleDouble angle = {position * inv_freq, 0.0};
  bool zero;
  if (recipe.frequencies == POSENC_EXACT) {
    angle = TwoProduct(position, inv_freq);
    zero = position == 0 || inv_freq == 0;
  } else {
    if (recipe.frequencies == POSENC_FLOAT32) angle.hi = static_cast<float>(angle.hi);
    zero = angle.hi == 0;
  }
  if (zero) {
    entry = {recipe.zero_cos, 0.0};
    return true;
  }
  // Within these bounds nothing below can overflow or underflow. Outside of them the guess may be a NaN.
  const double size = fabs(position), angle_size = fabs(angle.hi);
  const bool ordinary =
      recipe.scale_in_range && size >= 0x1p-800 && size <= 0x1p900 && angle_size >= kFastMin && angle_size <= kFastMax;
  const DoubleDouble scale = recipe.first_scale;
  if constexpr (kWide) {
    const WideAngle wide = WideSinCos(angle);
    const double turn_error = wide.turns * (fabs(scale.hi) * kWidePerTurn);
    DoubleDouble cos = Multiply(wide.cos, scale), sin = Multiply(wide.sin, scale);
    cos = FastTwoSum(cos.hi, cos.lo);
    sin = FastTwoSum(sin.hi, sin.lo);
    const bool cos_proven = RoundIfProven(turn_error, cos, entry.cos);
    return RoundIfProven(turn_error, sin, entry.sin) && cos_proven && ordinary;
  } else {
    const NarrowAngle narrow = NarrowSinCos(angle);
    const double turn_error = narrow.turns * (fabs(scale.hi) * kNarrowPerTurn);
    const NarrowFormat format = FirstFormat(recipe);
    entry = {narrow.cos * scale.hi, narrow.sin * scale.hi};
    const bool cos_proven = RoundIfProven(format, turn_error, entry.cos);
    return RoundIfProven(format, turn_error, entry.sin) && cos_proven && ordinary;
  }
}

// Second rounding, to the table's dtype. POSENC_FLOAT32 and POSENC_FLOAT64 first multiply (or divide) by the scale in
// that type. After POSENC_EXACT only an overflow is left, because the first rounding, to dtype, had no upper limit.
POSENC_ELEMENT double SecondRounded(const TableRecipe& recipe, double value) {
  if (recipe.frequencies == POSENC_EXACT) {
    return fabs(value) > LargestFinite(recipe.dtype) ? copysign(HUGE_VAL, value) : value;
  }
  if (value == 0) return 0.0;  // the sine of angle zero, which stays +0
  if (recipe.frequencies == POSENC_FLOAT32) {
    const float narrow = static_cast<float>(value), scale = static_cast<float>(recipe.scale);
    return RoundTo(recipe.dtype, recipe.divide ? narrow / scale : narrow * scale);
  }
  return RoundTo(recipe.dtype, recipe.divide ? value / recipe.scale : value * recipe.scale);
}

POSENC_ELEMENT Entry Finished(const TableRecipe& recipe, Entry first) {
  const double sin = SecondRounded(recipe, first.sin);
  return {SecondRounded(recipe, first.cos), recipe.negate_sin ? -sin : sin};
}

}  // namespace posenc::cuda
