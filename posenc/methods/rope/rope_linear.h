#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "linear".
RopeMethod LinearRope();

}  // namespace posenc
