#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "dynamic".
RopeMethod DynamicRope();

}  // namespace posenc
