// Rotation of one pair, with the formula and the roundings of posenc/kernels/rotate_pairs.h.
#pragma once

#include "cuda/elements/formats.h"

namespace posenc::cuda {

template <class Format>
struct ElementPair {
  typename Format::Bits first;
  typename Format::Bits second;
};

template <class Format, class Real>
POSENC_ELEMENT Real Product(Format format, posenc_rounding rounding, Real a, Real b) {
  const Real product = a * b;
  return rounding == POSENC_ROUND_EACH_OPERATION ? RoundTo(format, product) : product;
}

// Rotates one pair. Real is the type of the table and of the arithmetic.
template <class Format, class Real>
POSENC_ELEMENT ElementPair<Format> Rotated(Format format, posenc_rounding rounding, ElementPair<Format> x, Real cos,
                                           Real sin) {
  const Real x0 = Decode(format, x.first), x1 = Decode(format, x.second);
  const Real y0 = Product(format, rounding, x0, cos) - Product(format, rounding, x1, sin);
  const Real y1 = Product(format, rounding, x1, cos) + Product(format, rounding, x0, sin);
  return {Encode(format, y0), Encode(format, y1)};
}

}  // namespace posenc::cuda
