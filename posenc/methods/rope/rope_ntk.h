#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "ntk".
RopeMethod NtkRope();

}  // namespace posenc
