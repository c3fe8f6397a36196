#pragma once

#include "posenc/methods/rope.h"

namespace posenc {

// rope_type "ntk".
RopeMethod NtkRope();

}  // namespace posenc
