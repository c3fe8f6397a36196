// Rounding boundaries between the elements of a 16-bit format.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "posenc/base/dtype.h"
#include "tests/reference/scalar_format.h"

namespace posenc {

inline uint32_t InfinityOf(DType dtype) { return dtype == DType::kFP16 ? 0x7c00 : 0x7f80; }

// The rounding boundary between the 16-bit elements `bits` - 1 (not negative) and `bits`, which may be infinity.
inline double MiddleBelow(DType dtype, uint32_t bits) {
  const double below = reference::Decode16(dtype, static_cast<uint16_t>(bits - 1));
  if (bits < InfinityOf(dtype)) return (below + reference::Decode16(dtype, static_cast<uint16_t>(bits))) / 2;
  const double before = reference::Decode16(dtype, static_cast<uint16_t>(bits - 2));
  return below + (below - before) / 2;
}

// The boundaries between 16-bit elements and the values next to them.
template <class Real>
std::vector<Real> AroundBoundaries(DType dtype) {
  std::vector<Real> values;
  for (uint32_t element = 1; element <= InfinityOf(dtype); ++element) {
    const Real middle = static_cast<Real>(MiddleBelow(dtype, element));
    for (Real value :
         {std::nextafter(middle, Real{0}), middle, std::nextafter(middle, std::numeric_limits<Real>::infinity())}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  return values;
}

}  // namespace posenc
