// Where the elements of a pair lie among the rotated ones of a head row (posenc/kernels/rotate_pairs.h draws it).
#pragma once

#include <cstdint>

#include "cuda/elements/element.h"
#include "posenc/device/plugin_abi.h"

namespace posenc::cuda {

struct PairPlace {
  uint64_t first;
  uint64_t second;
};

// `half` is of each part: pairs / half_split_parts.
POSENC_ELEMENT PairPlace PlaceOf(posenc_pairing pairing, uint64_t half, uint64_t pair) {
  if (pairing == POSENC_INTERLEAVED) return {2 * pair, 2 * pair + 1};
  const uint64_t first = pair + pair / half * half;  // behind both halves of each part before its own
  return {first, first + half};
}

}  // namespace posenc::cuda
