#include "posenc/base/version.h"

namespace posenc {

const char kVersion[] = POSENC_VERSION;
const char kBuild[] = POSENC_BUILD;

}  // namespace posenc
