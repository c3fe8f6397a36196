// Rotates pairs of a tensor whose bytes may be split over several memory blocks (ByteSource).
#pragma once

#include <cstddef>

#include "posenc/base/byte_source.h"
#include "posenc/kernels/rotate_pairs.h"

namespace posenc {

// Rotates all tokens of `work`, whose x and y it sets. The first head row of the first token is read at byte `start` of
// x and written at byte `start` of y. Contiguous rows are read in place; a head row that spans several pieces is copied
// to scratch first, without the elements that are not rotated if it has more than 1 MiB. x may be y's own bytes (in
// place); otherwise they must not overlap.
void RotatePieces(PairRotation work, const ByteSource& x, std::byte* y, size_t start);

}  // namespace posenc
