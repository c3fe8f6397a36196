// Cache sizes of this machine.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace posenc {

// Returns the size of the first core's L2 cache in bytes, as the kernel reports it; nullopt if it reports none, as in
// some virtual machines. `root` is prepended to /sys: "" is this machine, tests pass a recorded tree.
std::optional<size_t> SecondLevelCache(const std::string& root = "");

// Returns true if `bytes`, all the memory that a call reads and writes, exceeds one core's L2 cache. Then non-temporal
// stores are faster: an ordinary store first reads the cache line that it overwrites, and the result would be evicted
// before its reader gets to it anyway. Thread-safe.
bool ExceedsCaches(size_t bytes);

}  // namespace posenc
