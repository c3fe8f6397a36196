// What this machine's caches hold.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace posenc {

// Bytes of the first core's second-level cache, as the kernel shows it; nothing where it does not, as in some virtual
// machines. `root` is put before /sys: "" means the machine itself, tests name a recorded tree.
std::optional<size_t> SecondLevelCache(const std::string& root = "");

// Whether so many bytes, all the memory that a call reads and writes, exceed one core's own caches. There, writing past
// the caches is faster, because an ordinary store first reads the line that it overwrites, and whoever reads the result
// would not find it in a cache anyway.
bool ExceedsCaches(size_t bytes);

}  // namespace posenc
