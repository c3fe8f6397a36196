#include "posenc/caches.h"

#include <unistd.h>

namespace posenc {

bool ExceedsCaches(size_t bytes) {
  // Where the C library does not know (-1 or 0: musl, some Arms), what most processors have.
  static const long known = sysconf(_SC_LEVEL2_CACHE_SIZE);
  static const size_t second_level = known > 0 ? static_cast<size_t>(known) : size_t{1} << 20;
  return bytes > second_level;
}

}  // namespace posenc
