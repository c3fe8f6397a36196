// Rotation from bytes that lie in pieces.
#pragma once

#include <cstddef>

#include "posenc/base/byte_source.h"
#include "posenc/kernels/rotate_pairs.h"

namespace posenc {

// Rotates all tokens of `work`, whose x and y it sets: the first head row of the first token is read at `start` of x
// and written at `start` of y. What lies together is rotated from where it is; a head row that does not is put together
// first. x may be y's own bytes (in place), else must not overlap them.
void Run(RotatePairs work, const ByteSource& x, std::byte* y, size_t start);

}  // namespace posenc
