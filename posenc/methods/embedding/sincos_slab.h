// Sines and cosines of a few rows, and the column orders in which encodings write them.
#pragma once

#include <cstddef>
#include <vector>

#include "posenc/base/dtype.h"
#include "posenc/base/modes.h"

namespace posenc {

enum class SinCosOrder { kSinCos, kCosSin, kInterleaved };  // interleaved: sin, cos, sin, cos, ...

class SinCosSlab {
 public:
  // Evaluates `count` rows: angle = position * inv_freq, values times `scale` (kernels/sincos_rows.h).
  static SinCosSlab OfPositions(Frequencies frequencies, DType dtype, const double* positions, size_t count,
                                const std::vector<double>& inv_freq, double scale = 1.0);
  // Evaluates rows of `pairs` angles that the caller has computed. Requires kFloat32 or kFloat64.
  static SinCosSlab OfAngles(Frequencies frequencies, DType dtype, const std::vector<double>& angles, size_t pairs);
  // Returns a zeroed slab that the caller fills through cosines() and sines().
  static SinCosSlab OfValues(DType dtype, size_t count, size_t pairs) { return SinCosSlab(dtype, count, pairs); }

  std::byte* cosines() { return reinterpret_cast<std::byte*>(values_.data()); }
  std::byte* sines() { return reinterpret_cast<std::byte*>(values_.data() + count_ * pairs_); }

  // Writes 2 * pairs elements per row. `stride` is the distance between rows of `out`, in bytes.
  void Write(SinCosOrder order, std::byte* out, size_t stride);
  // Writes 2 * pairs - 1 elements per row: all sines, then all cosines but the last.
  void WriteOdd(std::byte* out, size_t stride);

 private:
  SinCosSlab(DType dtype, size_t count, size_t pairs)
      : size_(SizeOf(dtype)), count_(count), pairs_(pairs), values_(2 * count * pairs) {}

  size_t size_, count_, pairs_;
  std::vector<double> values_;  // raw storage: double has the largest size and alignment
};

}  // namespace posenc
