// What a method of relative terms is asked for.
#pragma once

#include <cstdint>

#include "posenc/settings/settings.h"

namespace posenc {

struct RelativeShape {
  int64_t heads = 0;  // the first that are not needed: head_start + H
  int64_t head_dim = 0;
  bool content = false;
  Distances distances{0, 0};  // key - query, whole numbers, at most max_bias_values
  double least_position = 0;  // of all queries and keys
  double largest_position = 0;
};

}  // namespace posenc
