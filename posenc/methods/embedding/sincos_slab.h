// Sines and cosines of a few rows, and the orders in which encodings lay them out.
#pragma once

#include <cstddef>
#include <vector>

#include "posenc/base/dtype.h"
#include "posenc/base/modes.h"

namespace posenc {

enum class SinCosOrder { kSinCos, kCosSin, kInterleaved };  // interleaved: sin, cos, sin, cos, ...

class SinCosSlab {
 public:
  // `count` rows at these positions: angle = position * inv_freq, values times `scale` (kernels/sincos_rows.h).
  static SinCosSlab OfPositions(Frequencies frequencies, DType dtype, const double* positions, size_t count,
                                const std::vector<double>& inv_freq, double scale = 1.0);
  // The same where the arithmetic's own chain has led to the angles already, `pairs` a row: kFloat32 or kFloat64.
  static SinCosSlab OfAngles(Frequencies frequencies, DType dtype, const std::vector<double>& angles, size_t pairs);
  // To be filled by the caller.
  static SinCosSlab OfValues(DType dtype, size_t count, size_t pairs) { return SinCosSlab(dtype, count, pairs); }

  std::byte* cosines() { return reinterpret_cast<std::byte*>(values_.data()); }
  std::byte* sines() { return reinterpret_cast<std::byte*>(values_.data() + count_ * pairs_); }

  // Writes 2 * pairs elements a row; the rows begin `stride` bytes apart.
  void Write(SinCosOrder order, std::byte* out, size_t stride);

 private:
  SinCosSlab(DType dtype, size_t count, size_t pairs)
      : size_(SizeOf(dtype)), count_(count), pairs_(pairs), values_(2 * count * pairs) {}

  size_t size_, count_, pairs_;
  std::vector<double> values_;  // doubles for their size and alignment
};

}  // namespace posenc
