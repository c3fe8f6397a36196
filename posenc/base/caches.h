// Cache sizes of this machine.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace posenc {

// Returns the size of the first core's cache of this level (2 or 3) in bytes, as the kernel reports it; nullopt if it
// reports none, as in some virtual machines. `root` is prepended to /sys: "" is this machine, tests pass a recorded
// tree.
std::optional<size_t> CacheSize(int level, const std::string& root = "");

// Returns true if `bytes`, all the memory that a call reads and writes, exceeds one core's L2 cache. Thread-safe.
bool ExceedsCore(size_t bytes);

// Returns true if `bytes`, all the memory that a call reads and writes, exceeds the caches that are faster than memory:
// L2, and on AMD's processors half of L3, which few cores share there. Then non-temporal stores are faster: an ordinary
// store first reads the cache line that it overwrites, and the result would be evicted before its reader gets to it
// anyway. Thread-safe.
bool ExceedsCaches(size_t bytes);

// Returns true if the processor itself fetches what a loop is about to read and write in memory order, as AMD's do: in
// the caches, and far ahead of memory that is overwritten, prefetching then only takes time. Thread-safe.
bool FetchesByItself();

}  // namespace posenc
