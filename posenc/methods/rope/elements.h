// Places of pairs in the rotated elements of a head row.
#pragma once

#include <cstdint>

#include "posenc/base/modes.h"

namespace posenc {

// Elements of `pairs` pairs; half-split pairing splits each of `parts` equal parts separately.
class PairPlaces {
 public:
  PairPlaces(Pairing pairing, int64_t pairs, int64_t parts)
      : interleaved_(pairing == Pairing::kInterleaved), part_(pairs / parts) {}

  // Returns the element that is first (0) or second (1) in the pair.
  int64_t Element(int64_t pair, int64_t which) const {
    return interleaved_ ? 2 * pair + which : pair + (pair / part_ + which) * part_;
  }
  // Returns the pair that the element belongs to.
  int64_t Pair(int64_t element) const {
    return interleaved_ ? element / 2 : element / (2 * part_) * part_ + element % part_;
  }

 private:
  bool interleaved_;
  int64_t part_;
};

}  // namespace posenc
