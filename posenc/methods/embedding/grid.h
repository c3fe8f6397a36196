// Sines and cosines of the coordinates of a 2-D or 3-D grid, in the conventions of proto/posenc/v1/embedding.proto.
#pragma once

#include "posenc/methods/embedding/encoding.h"

namespace posenc {

// kExact: the distance of two neighbouring cells (diffusers: base_size / (size * interpolation_scale), elsewhere 1) is
// part of the frequency, which is rounded once to float64. Otherwise the originals' chain: the coordinate in float32,
// frequency and angle in the arithmetic's type.
EncodingOr Encode(GridSettings settings, Frequencies arithmetic, const Limits& limits);

}  // namespace posenc
