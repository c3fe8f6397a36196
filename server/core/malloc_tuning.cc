#include "server/core/signals.h"

#include <malloc.h>

#include <algorithm>
#include <limits>

namespace posenc::server {

void KeepFreedMemory([[maybe_unused]] int64_t bytes) {
#ifdef __GLIBC__
  constexpr int kMiB = 1 << 20, kHeaps = 2;
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(std::min<int64_t>(bytes, std::numeric_limits<int>::max())));
  mallopt(M_TOP_PAD, static_cast<int>(std::clamp<int64_t>(bytes / 16, 0, 16 * kMiB)));
  mallopt(M_ARENA_MAX, kHeaps);
#endif
}

void ReturnFreedMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace posenc::server
