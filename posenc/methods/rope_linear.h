#pragma once

#include "posenc/methods/rope.h"

namespace posenc {

// rope_type "linear".
RopeMethod LinearRope();

}  // namespace posenc
