// Conversions between FP32, FP16 or BF16 bits and numbers. Encoding rounds once, to nearest, ties to even.
//
// A value too large for the format becomes an infinity, one too small a subnormal or a zero of its sign, a NaN some
// NaN. The device's conversion instructions and the CPU's integer code give the same bits.
#pragma once

#include <math.h>

#include <cstdint>
#include <type_traits>

#include "cuda/elements/element.h"
#include "posenc/device/plugin_abi.h"
#include "posenc/kernels/convert.h"  // the formats as types

namespace posenc::cuda {

// Exact conversions to float.
POSENC_ELEMENT float Decode(Float32, uint32_t bits) { return BitCast<float>(bits); }
POSENC_ELEMENT float Decode(BFloat16, uint16_t bits) { return BitCast<float>(uint32_t{bits} << 16); }
POSENC_ELEMENT float Decode(Float16, uint16_t bits) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
#else
  const uint32_t sign = (bits & 0x8000u) << 16;
  const uint32_t magnitude = (bits & 0x7fffu) << 13;
  constexpr uint32_t kRebias = 112u << 23;  // increase of the exponent bias
  if (magnitude >= 0x7c00u << 13) return BitCast<float>(sign | (magnitude + 2 * kRebias));
  if (magnitude >= 0x0400u << 13) return BitCast<float>(sign | (magnitude + kRebias));
  // A subnormal m * 2^-24 is computed as (2^-14 + m * 2^-24) - 2^-14, which is exact.
  const float subnormal = BitCast<float>(magnitude + (113u << 23)) - 0x1p-14f;
  return BitCast<float>(sign | BitCast<uint32_t>(subnormal));
#endif
}

POSENC_ELEMENT uint32_t Encode(Float32, float value) { return BitCast<uint32_t>(value); }
// Encodes two numbers as BF16 or FP16: `low` in the lower half of the result.
template <class Format>
POSENC_ELEMENT uint32_t EncodePair(Format format, float low, float high);
POSENC_ELEMENT uint16_t Encode(BFloat16 format, float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  // The instruction for two numbers is several times as fast as that for one.
  return static_cast<uint16_t>(EncodePair(format, value, 0));
#else
  (void)format;
  const uint32_t bits = BitCast<uint32_t>(value);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);  // a carry could turn the NaN into a number
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}
POSENC_ELEMENT uint16_t Encode(Float16, float value) {
#ifdef __CUDA_ARCH__
  uint16_t rounded;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
  return rounded;
#else
  const uint32_t bits = BitCast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t narrow;
  if (magnitude > 0x7f800000) {
    narrow = 0x7e00;
  } else if (magnitude >= 0x47800000) {  // at least 2^16
    narrow = 0x7c00;
  } else if (magnitude >= 0x38800000) {
    // Lowers the exponent bias by 112 and rounds off 13 bits. From 65520 on, the carry gives an infinity.
    narrow = (magnitude + (magnitude >> 13 & 1) + 0x0fff - (112u << 23)) >> 13;
  } else {
    // The last bit of 1/2 + |value| is 2^-24, so the addition rounds correctly and its low bits are the result.
    narrow = BitCast<uint32_t>(BitCast<float>(magnitude) + 0.5f) - 0x3f000000;
  }
  return static_cast<uint16_t>(sign | narrow);
#endif
}

template <class Format>
POSENC_ELEMENT uint32_t EncodePair(Format format, float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  (void)format;
  uint32_t pair;
  if constexpr (std::is_same_v<Format, BFloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
#else
  return uint32_t{Encode(format, high)} << 16 | Encode(format, low);
#endif
}

// Powers of two: the smallest normal number, the first that is too large, and 2^(bits of a double's mantissa that the
// format lacks). (Device code can use constants that the host compiler computes, but cannot call PowerOfTwo.)
template <class Format>
inline constexpr double kLeastNormal = PowerOfTwo(Format::kMinExponent);
template <class Format>
inline constexpr double kTooLarge = PowerOfTwo(Format::kMaxExponent + 1);
template <class Format>
inline constexpr double kDroppedBits = PowerOfTwo(Float64::kMantissaBits - Format::kMantissaBits);

POSENC_ELEMENT double LargestFinite(posenc_dtype dtype) {
  switch (dtype) {
    case POSENC_FP32: return kLargestFinite<Float32>;
    case POSENC_FP16: return kLargestFinite<Float16>;
    case POSENC_BF16: return kLargestFinite<BFloat16>;
    case POSENC_FP64: break;
  }
  return kLargestFinite<Float64>;
}

// RoundTo rounds to the format and returns the argument's type. A double is rounded once, not by way of float.
POSENC_ELEMENT float RoundTo(Float32, float value) { return value; }
POSENC_ELEMENT double RoundTo(Float32, double value) { return static_cast<float>(value); }
template <class Format>
POSENC_ELEMENT float RoundTo(Format format, float value) {
  return Decode(format, Encode(format, value));
}
// Rounding of a double to a format with m explicit bits. Adding 2^(52 - m) times the value's own power of two rounds
// off its last 52 - m bits. Below the smallest normal number the power stays constant, as the format's unit in the last
// place does.
template <class Format>
POSENC_ELEMENT double RoundTo(Format, double value) {
  const double magnitude = fabs(value);
  double power = BitCast<double>(BitCast<uint64_t>(magnitude) & 0x7ff0000000000000);
  power = power < kLeastNormal<Format> ? kLeastNormal<Format> : power > kTooLarge<Format> ? kTooLarge<Format> : power;
  const double shifter = power * kDroppedBits<Format>;
  const double rounded = magnitude + shifter - shifter;
  return copysign(rounded > kLargestFinite<Format> ? HUGE_VAL : rounded, value);
}
POSENC_ELEMENT float RoundTo(posenc_dtype dtype, float value) {
  if (dtype == POSENC_FP16) return RoundTo(Float16(), value);
  if (dtype == POSENC_BF16) return RoundTo(BFloat16(), value);
  return value;
}
POSENC_ELEMENT double RoundTo(posenc_dtype dtype, double value) {
  switch (dtype) {
    case POSENC_FP32: return RoundTo(Float32(), value);
    case POSENC_FP16: return RoundTo(Float16(), value);
    case POSENC_BF16: return RoundTo(BFloat16(), value);
    case POSENC_FP64: break;
  }
  return value;
}

template <class Format>
POSENC_ELEMENT typename Format::Bits Encode(Format format, double value) {
  return Encode(format, static_cast<float>(RoundTo(format, value)));  // the conversion is exact or an infinity
}

}  // namespace posenc::cuda
