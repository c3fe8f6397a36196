// DeepSeek V4: layers with a compressor have a rotary embedding of their own.
#pragma once

#include "posenc/model/model_types.h"

namespace posenc {

ClassRules DeepseekV4Rules();

}  // namespace posenc
