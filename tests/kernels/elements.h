// Random elements, including values that often break arithmetic, and comparison of results.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "posenc/base/dtype.h"
#include "posenc/base/line_allocator.h"
#include "tests/reference/scalar_format.h"

namespace posenc {

// Exactly `size` bytes after `misalignment` others, up to the end of the allocation: AddressSanitizer detects an
// overrun. The allocation starts at a cache line, as streaming stores require.
class Block {
 public:
  explicit Block(size_t size, size_t misalignment = 0)
      : bytes_(misalignment + size, std::byte{0}), misalignment_(misalignment) {}
  std::byte* data() { return bytes_.data() + misalignment_; }
  const std::byte* data() const { return bytes_.data() + misalignment_; }
  size_t size() const { return bytes_.size() - misalignment_; }

 private:
  LineVector<std::byte> bytes_;
  size_t misalignment_;
};

// Most elements have ordinary size, some have random bits, some are special values of `dtype`.
inline void FillWithElements(DType dtype, std::mt19937_64& random, std::byte* to, size_t count) {
  const bool half = dtype == DType::kFP16;
  const double largest = half ? 65504 : dtype == DType::kBF16 ? 0x1.fep127 : std::numeric_limits<float>::max();
  const double tiny = half ? 0x1p-24 : dtype == DType::kBF16 ? 0x1p-133 : 0x1p-149;
  const double normal = half ? 0x1p-14 : 0x1p-126;
  const double specials[] = {0.0,
                             1.0,
                             largest,
                             largest / 2,
                             tiny,
                             3 * tiny,
                             normal,
                             normal - tiny,
                             std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()};
  const size_t element = SizeOf(dtype);
  for (size_t i = 0; i < count; ++i, to += element) {
    const uint64_t draw = random();
    const double sign = draw % 2 == 0 ? 1 : -1;
    if (draw % 16 < 10) {
      reference::Encode(dtype, sign * std::ldexp(static_cast<double>(random() >> 11), -51), to);
    } else if (draw % 16 < 14) {
      const uint64_t bits = random();
      std::memcpy(to, &bits, element);
    } else {
      reference::Encode(dtype, sign * specials[random() % std::size(specials)], to);
    }
  }
}

// Gives every NaN the same bits, so that memory can be compared whole: NaN payloads are unspecified.
inline void MakeNansEqual(DType dtype, std::byte* elements, size_t count) {
  for (size_t i = 0; i < count; ++i, elements += SizeOf(dtype)) {
    if (!std::isnan(reference::Decode(dtype, elements))) continue;
    reference::Encode(dtype, std::numeric_limits<double>::quiet_NaN(), elements);
  }
}

inline void ExpectSameBytes(const Block& expected, const Block& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  if (std::equal(expected.data(), expected.data() + expected.size(), actual.data())) return;
  size_t byte = 0;
  while (expected.data()[byte] == actual.data()[byte]) ++byte;
  ADD_FAILURE() << "first difference at byte " << byte << " of " << actual.size();
}

// Returns the seed of a test, and prints it in every run.
inline uint64_t PrintedSeed(uint64_t seed) {
  testing::Test::RecordProperty("seed", std::to_string(seed));
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

}  // namespace posenc
