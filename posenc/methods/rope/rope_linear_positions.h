#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "linear_positions".
RopeMethod LinearPositionsRope();

}  // namespace posenc
