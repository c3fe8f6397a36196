// Reference: reading and writing elements of a floating-point type, straight from the definition of the formats.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "posenc/base/dtype.h"

namespace posenc::reference {

struct FormatOf16Bits {
  int mantissa_bits;
  int min_exponent;  // of normal numbers
  int max_exponent;
};

inline FormatOf16Bits FormatOf(DType dtype) {
  return dtype == DType::kFP16 ? FormatOf16Bits{10, -14, 15} : FormatOf16Bits{7, -126, 127};
}

inline double Decode16(DType dtype, uint16_t bits) {
  const FormatOf16Bits format = FormatOf(dtype);
  const int fraction = bits % (1 << format.mantissa_bits);
  const int exponent_field = (bits & 0x7fff) >> format.mantissa_bits;
  double magnitude;
  if (exponent_field == format.max_exponent - format.min_exponent + 2) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent_field == 0) {
    magnitude = std::ldexp(fraction, format.min_exponent - format.mantissa_bits);
  } else {
    magnitude = std::ldexp(fraction + (1 << format.mantissa_bits),
                           exponent_field - 1 + format.min_exponent - format.mantissa_bits);
  }
  return std::copysign(magnitude, bits >> 15 ? -1.0 : 1.0);
}

// Rounds to nearest, ties to even: the value as a multiple of the format's ulp, rounded to an integer.
inline uint16_t Encode16(DType dtype, double value) {
  const FormatOf16Bits format = FormatOf(dtype);
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = (format.max_exponent - format.min_exponent + 2) << format.mantissa_bits;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | 1 << (format.mantissa_bits - 1));
  if (value == 0) return sign;
  if (std::isinf(value)) return static_cast<uint16_t>(sign | infinity);
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  if (exponent > format.max_exponent) return static_cast<uint16_t>(sign | infinity);
  const int units = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(value), format.mantissa_bits - exponent)));
  const int magnitude = ((exponent - format.min_exponent) << format.mantissa_bits) + units;
  return static_cast<uint16_t>(sign | magnitude);
}

inline double Decode(DType dtype, const std::byte* element) {
  if (dtype == DType::kFP64) {
    double value;
    std::memcpy(&value, element, sizeof(value));
    return value;
  }
  if (dtype == DType::kFP32) {
    float value;
    std::memcpy(&value, element, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, element, sizeof(bits));
  return Decode16(dtype, bits);
}

inline void Encode(DType dtype, double value, std::byte* element) {
  if (dtype == DType::kFP64) {
    std::memcpy(element, &value, sizeof(value));
  } else if (dtype == DType::kFP32) {
    const float narrow = static_cast<float>(value);
    std::memcpy(element, &narrow, sizeof(narrow));
  } else {
    const uint16_t bits = Encode16(dtype, value);
    std::memcpy(element, &bits, sizeof(bits));
  }
}

// The value rounded to `dtype`.
inline double Round(DType dtype, double value) {
  std::byte element[8];
  Encode(dtype, value, element);
  return Decode(dtype, element);
}

}  // namespace posenc::reference
