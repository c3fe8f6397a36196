// Pseudo-random numbers that are the same on every platform for a seed. The standard library's distributions differ
// between implementations.
#pragma once

#include <cstdint>

namespace posenc {

// Returns the n-th number of a seed's sequence without computing the ones before it (SplitMix64). Thread-safe.
inline uint64_t RandomAt(uint64_t seed, uint64_t n) {
  uint64_t x = seed + (n + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Maps a random number to [0, 1).
inline double UnitOf(uint64_t random) { return static_cast<double>(random >> 11) * 0x1p-53; }

}  // namespace posenc
