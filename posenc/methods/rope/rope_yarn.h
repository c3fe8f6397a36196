#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "yarn".
RopeMethod YarnRope();

}  // namespace posenc
