#pragma once

#include "posenc/methods/rope.h"

namespace posenc {

// rope_type "pixel".
RopeMethod PixelRope();

}  // namespace posenc
