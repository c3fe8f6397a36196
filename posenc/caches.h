// What this machine's caches hold.
#pragma once

#include <cstddef>

namespace posenc {

// Whether so many bytes, all that a call reads and writes, exceed one core's own caches. There, writing past the caches
// is faster, because an ordinary store first reads the line that it overwrites, and whoever reads the result would not
// find it in a cache anyway.
bool ExceedsCaches(size_t bytes);

}  // namespace posenc
