#pragma once

#include "posenc/methods/rope.h"

namespace posenc {

// rope_type "longrope".
RopeMethod LongropeRope();

}  // namespace posenc
