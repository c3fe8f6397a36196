// Learned absolute encodings: rows of the caller's table.
#pragma once

#include "posenc/methods/embedding/encoding.h"

namespace posenc {

// A row without a scale is converted once. With one, kExact rounds the real product once to the answer's type; the
// others round element, scale and product to their own type first.
EncodingOr Encode(LearnedSettings settings, Frequencies arithmetic, const Limits& limits);

}  // namespace posenc
