// Indices of a pair's elements among the rotated elements of a head row (diagram: posenc/kernels/rotate_pairs.h).
#pragma once

#include <cstdint>

#include "cuda/elements/element.h"
#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {

struct PairPlace {
  uint64_t first;
  uint64_t second;
};

// Returns the indices of pair `pair`. `half` is the number of pairs per part: pairs / half_split_parts.
POSENC_ELEMENT PairPlace PlaceOf(posenc_pairing pairing, uint64_t half, uint64_t pair) {
  if (pairing == POSENC_INTERLEAVED) return {2 * pair, 2 * pair + 1};
  const uint64_t first = pair + pair / half * half;  // skips the second halves of earlier parts
  return {first, first + half};
}

}  // namespace posenc::cuda
