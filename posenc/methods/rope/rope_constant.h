#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "constant".
RopeMethod ConstantRope();

}  // namespace posenc
