// Fourier features (arXiv:2006.10739): sin and cos of 2 pi B x, for the caller's B and points x.
#pragma once

#include "posenc/methods/embedding/encoding.h"

namespace posenc {

// kExact: each entry is the sine or cosine of the real number 2 pi (B x), rounded once. Otherwise the chain of the
// original's code: x_j times fl(2 pi), products with B summed from the first on, each operation rounded.
EncodingOr Encode(FourierSettings settings, Frequencies arithmetic, const Limits& limits);

}  // namespace posenc
