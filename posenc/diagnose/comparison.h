// Comparison of two arrays of one type, in units in the last place (ULP).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "posenc/base/dtype.h"

namespace posenc::diagnose {

// A distance is the number of steps between two values of the type: 1 for adjacent values, also across zero and powers
// of two. Two NaNs are equal; a NaN and a number have the largest distance.
class Comparison {
 public:
  // Counts `count` elements; returns the first that differs, or `count`.
  size_t Add(DType dtype, const std::byte* ours, const std::byte* theirs, size_t count);
  void Merge(const Comparison& other);

  uint64_t elements() const { return elements_; }
  uint64_t equal() const { return equal_; }
  double share() const { return elements_ == 0 ? 0 : static_cast<double>(equal_) / static_cast<double>(elements_); }
  uint64_t worst() const { return worst_; }
  // Exact below 128; larger values are rounded down to seven binary digits.
  uint64_t median() const;
  // The mean of log2(1 + distance), to which those of ours that are NaN add nothing; 0 if all are equal.
  double mean_log() const;

 private:
  static constexpr size_t kExact = 128, kBuckets = kExact + 64 * 57;
  static size_t BucketOf(uint64_t distance);
  static uint64_t Lowest(size_t bucket);

  uint64_t elements_ = 0, equal_ = 0, worst_ = 0;
  uint64_t undefined_ = 0;  // ours is NaN, theirs is a number
  std::array<uint64_t, kBuckets> counts_{};
};

// Returns the distance between two elements of FP64, FP32, FP16 or BF16.
uint64_t UlpDistance(DType dtype, const std::byte* a, const std::byte* b);

// Returns whether no element of an array of FP64, FP32, FP16 or BF16 is infinite or NaN.
bool AreFinite(DType dtype, const std::byte* elements, size_t count);

// Returns an element of FP64, FP32, FP16 or BF16 as double.
double ValueOf(DType dtype, const std::byte* element);

}  // namespace posenc::diagnose
