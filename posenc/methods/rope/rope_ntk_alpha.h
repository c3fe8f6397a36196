#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "ntk_alpha".
RopeMethod NtkAlphaRope();

}  // namespace posenc
