#include "posenc/methods/embedding/sincos_slab.h"
#include "posenc/kernels/sincos_rows.h"

#include <cstring>

namespace posenc {

SinCosSlab SinCosSlab::OfPositions(Frequencies frequencies, DType dtype, const double* positions, size_t count,
                                   const std::vector<double>& inv_freq, double scale) {
  SinCosSlab slab(dtype, count, inv_freq.size());
  ComputeSinCosRows(SinCosRows{.frequencies = frequencies,
                               .dtype = dtype,
                               .positions = positions,
                               .inv_freq = inv_freq.data(),
                               .rows = count,
                               .pairs = inv_freq.size(),
                               .scale = scale,
                               .cos = slab.cosines(),
                               .sin = slab.sines()},
                    0, count);
  return slab;
}

SinCosSlab SinCosSlab::OfAngles(Frequencies frequencies, DType dtype, const std::vector<double>& angles, size_t pairs) {
  // The kernel takes the angles as the frequencies of one long row at position 1.
  const double one = 1.0;
  SinCosSlab slab = OfPositions(frequencies, dtype, &one, 1, angles);
  slab.count_ = pairs == 0 ? 0 : angles.size() / pairs;
  slab.pairs_ = pairs;
  return slab;
}

void SinCosSlab::Write(SinCosOrder order, std::byte* out, size_t stride) {
  if (pairs_ == 0) return;
  const size_t half = pairs_ * size_;
  const std::byte *cos_row = cosines(), *sin_row = sines();
  for (size_t r = 0; r < count_; ++r, out += stride, cos_row += half, sin_row += half) {
    if (order == SinCosOrder::kInterleaved) {
      for (size_t k = 0; k < pairs_; ++k) {
        std::memcpy(out + 2 * k * size_, sin_row + k * size_, size_);
        std::memcpy(out + (2 * k + 1) * size_, cos_row + k * size_, size_);
      }
    } else {
      const bool flip = order == SinCosOrder::kCosSin;
      std::memcpy(out, flip ? cos_row : sin_row, half);
      std::memcpy(out + half, flip ? sin_row : cos_row, half);
    }
  }
}

void SinCosSlab::WriteOdd(std::byte* out, size_t stride) {
  const size_t half = pairs_ * size_;
  const std::byte *cos_row = cosines(), *sin_row = sines();
  for (size_t r = 0; r < count_; ++r, out += stride, cos_row += half, sin_row += half) {
    std::memcpy(out, sin_row, half);
    std::memcpy(out + half, cos_row, half - size_);
  }
}

}  // namespace posenc
