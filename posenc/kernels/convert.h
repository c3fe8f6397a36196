// Floating-point formats and the conversions between them: each rounds once, to nearest, ties to even.
//
// The sign is always kept: a value too large for the format becomes infinity, a value too small becomes a subnormal or
// zero, and a NaN stays a NaN. The templates below are scalar, for plans and tests; vector code is in convert-inl.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "posenc/base/dtype.h"

namespace posenc {

// A format as a type: a sign bit, an exponent field and kMantissaBits explicit bits of significand. Normal numbers have
// exponents from kMinExponent to kMaxExponent; the subnormals below are multiples of 2^(kMinExponent - kMantissaBits).
struct Float64 {
  using Bits = uint64_t;
  static constexpr int kMantissaBits = 52, kMinExponent = -1022, kMaxExponent = 1023;
};
struct Float32 {
  using Bits = uint32_t;
  static constexpr int kMantissaBits = 23, kMinExponent = -126, kMaxExponent = 127;
};
struct Float16 {
  using Bits = uint16_t;
  static constexpr int kMantissaBits = 10, kMinExponent = -14, kMaxExponent = 15;
};
struct BFloat16 {
  using Bits = uint16_t;
  static constexpr int kMantissaBits = 7, kMinExponent = -126, kMaxExponent = 127;
};
// BFloat16 for float lanes whose NaNs, if any, have zeros in their lower halves. NaNs from products and sums of widened
// elements do, so rounding skips the NaN test.
struct BFloat16Arithmetic : BFloat16 {};
template <class Format>
inline constexpr bool kIsBFloat16 = std::is_base_of_v<BFloat16, Format>;

// Returns 2^exponent, for exponents of normal float64 numbers.
constexpr double PowerOfTwo(int exponent) {
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

// The bits of +infinity in a 16-bit format, and the largest finite value of any format.
template <class Format>
inline constexpr uint16_t kInfinityBits = 0x7fff >> Format::kMantissaBits << Format::kMantissaBits;
template <class Format>
inline constexpr double kLargestFinite = (2 - PowerOfTwo(-Format::kMantissaBits)) * PowerOfTwo(Format::kMaxExponent);

// Returns the value of a Float16 or BFloat16 element (exact).
template <class Format>
constexpr float Widen(uint16_t bits) {
  const bool negative = bits >> 15;
  const int exponent_field = (bits & kInfinityBits<Format>) >> Format::kMantissaBits;
  const uint32_t fraction = bits & ((1u << Format::kMantissaBits) - 1);
  if ((bits & kInfinityBits<Format>) == kInfinityBits<Format>) {
    return std::bit_cast<float>((negative ? 0xff800000u : 0x7f800000u) |
                                fraction << (Float32::kMantissaBits - Format::kMantissaBits));
  }
  const uint32_t significand = exponent_field == 0 ? fraction : fraction + (1u << Format::kMantissaBits);
  const int exponent = std::max(exponent_field - 1, 0) + Format::kMinExponent - Format::kMantissaBits;
  const double magnitude = significand * PowerOfTwo(exponent);
  return static_cast<float>(negative ? -magnitude : magnitude);
}

// Returns the Float16 or BFloat16 element nearest to a double (or to a float, which converts to double exactly).
template <class Format>
constexpr uint16_t Narrow(double value) {
  constexpr int kDropped = Float64::kMantissaBits - Format::kMantissaBits;
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 63 << 15);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff) - 1023;
  if (exponent == 1024) {
    const uint64_t quiet_nan = uint64_t{1} << (Format::kMantissaBits - 1) | fraction >> kDropped;
    return static_cast<uint16_t>(sign | kInfinityBits<Format> | (fraction == 0 ? 0 : quiet_nan));
  }
  // Below the smallest normal number the unit in the last place stays the same, so more bits of the significand drop.
  // 54 bits and more leave less than half of the smallest subnormal (as do float64's own subnormals).
  const uint64_t significand = fraction | uint64_t{1} << 52;
  const int shift = std::min(kDropped + std::max(Format::kMinExponent - exponent, 0), 54);
  uint64_t kept = significand >> shift;
  const uint64_t dropped = significand - (kept << shift);
  const uint64_t half = uint64_t{1} << (shift - 1);
  kept += dropped > half || (dropped == half && kept % 2 == 1);
  // The implicit bit of a normal significand, or the carry into it, adds one to the exponent field.
  const uint64_t exponent_field = static_cast<uint64_t>(std::max(exponent - Format::kMinExponent, 0));
  const uint64_t magnitude = (exponent_field << Format::kMantissaBits) + kept;
  return static_cast<uint16_t>(sign | std::min<uint64_t>(magnitude, kInfinityBits<Format>));
}

// Converts `count` elements between FP64, FP32, FP16 and BF16. Gives the same bytes on every CPU target, except for NaN
// payloads. Aborts on other types. No alignment needed. The arrays must not overlap, unless from == to and src == dst.
void Convert(DType from, DType to, const void* src, void* dst, size_t count);

// Rounds the values to FP32, FP16 or BF16.
void RoundTo(DType dtype, float* values, size_t count);

}  // namespace posenc
