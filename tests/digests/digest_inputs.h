// Inputs of the digests' cases: each number follows from its index by a few integer operations, so that
// tests/digests/test_digests.py can compute the same ones without this code.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "posenc/base/dtype.h"

namespace posenc {

// The splitmix64 generator's output at a chosen state.
inline uint64_t Random(uint64_t stream, uint64_t index) {
  uint64_t z = (stream << 32) + index + 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

// A random number with any mantissa and sign, of magnitude 2^low up to 2^(low + span).
inline double RandomReal(uint64_t stream, uint64_t index, int low, uint64_t span) {
  const uint64_t random = Random(stream, index);
  return std::bit_cast<double>(random % 2 << 63 | (1023 + low + random / 2 % span) << 52 | random >> 12);
}

// The bits of an element. 10 of 16 have ordinary size, many of them halfway between two values of a narrower type; 4
// have any exponent, including subnormals, infinity and NaN; 2 are special values.
inline uint64_t RandomElement(DType dtype, uint64_t stream, uint64_t index) {
  const int bits = 8 * static_cast<int>(SizeOf(dtype));
  const int mantissa_bits = dtype == DType::kFP64 ? 52 : dtype == DType::kFP32 ? 23 : dtype == DType::kFP16 ? 10 : 7;
  const uint64_t all_exponents = (uint64_t{1} << (bits - 1 - mantissa_bits)) - 1;
  const uint64_t bias = all_exponents / 2;
  const uint64_t normal = uint64_t{1} << mantissa_bits;  // the smallest normal number; also one step of the exponent
  const uint64_t infinity = all_exponents * normal;

  const uint64_t random = Random(stream, index);
  const uint64_t sign = random % 2 << (bits - 1);
  const uint64_t kind = random / 2 % 16;
  const uint64_t choice = random / 32;
  uint64_t mantissa = random >> (64 - mantissa_bits);
  if (kind < 10) {
    const int kept = std::min(std::vector<int>{8, 11, 24, 52}[choice / 16 % 4], mantissa_bits);
    mantissa = mantissa >> (mantissa_bits - kept) << (mantissa_bits - kept);
    return sign + (bias - 4 + choice % 8) * normal + mantissa;
  }
  if (kind < 14) return sign + choice % (all_exponents + 1) * normal + mantissa;
  return sign + std::vector<uint64_t>{0, 1, 3, normal - 1, normal, infinity - 1, infinity, bias * normal}[choice % 8];
}

// Writes elements first, first + 1 ... of a stream.
inline void FillWithElements(DType dtype, uint64_t stream, uint64_t first, size_t count, std::byte* to) {
  for (size_t i = 0; i < count; ++i, to += SizeOf(dtype)) {
    const uint64_t bits = RandomElement(dtype, stream, first + i);
    std::memcpy(to, &bits, SizeOf(dtype));
  }
}

}  // namespace posenc
