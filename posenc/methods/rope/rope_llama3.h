#pragma once

#include "posenc/methods/rope/rope.h"

namespace posenc {

// rope_type "llama3".
RopeMethod Llama3Rope();

}  // namespace posenc
