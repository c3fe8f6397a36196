#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "proportional".
RopeMethod ProportionalRope();

}  // namespace posenc
