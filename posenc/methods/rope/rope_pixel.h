#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "pixel".
RopeMethod PixelRope();

}  // namespace posenc
