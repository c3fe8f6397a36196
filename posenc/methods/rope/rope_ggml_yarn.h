#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "ggml_yarn".
RopeMethod GgmlYarnRope();

}  // namespace posenc
