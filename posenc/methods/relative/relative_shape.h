// Heads, channels and positions for which a relative-term method computes its tables.
#pragma once

#include <cstdint>

#include "posenc/settings/settings.h"

namespace posenc {

struct RelativeShape {
  int64_t heads = 0;  // heads that the weights must have: head_start + H
  int64_t head_dim = 0;
  bool content = false;
  Distances distances{0, 0};  // key - query, whole numbers, at most max_bias_values
  double least_position = 0;  // over all queries and keys
  double largest_position = 0;
};

}  // namespace posenc
