#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "default".
RopeMethod DefaultRope();

}  // namespace posenc
