#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "longrope".
RopeMethod LongropeRope();

}  // namespace posenc
