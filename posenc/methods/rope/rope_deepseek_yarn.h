#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "deepseek_yarn".
RopeMethod DeepseekYarnRope();

}  // namespace posenc
