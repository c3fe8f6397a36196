#pragma once

#include "posenc/methods/rope.h"

namespace posenc {

// rope_type "constant".
RopeMethod ConstantRope();

}  // namespace posenc
