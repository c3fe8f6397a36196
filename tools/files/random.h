// Numbers that look random and are the same everywhere for a seed: the standard library's distributions differ between
// its makers.
#pragma once

#include <cstdint>

namespace posenc {

// The n-th of a seed's sequence, without those before it (SplitMix64).
inline uint64_t RandomAt(uint64_t seed, uint64_t n) {
  uint64_t x = seed + (n + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// In [0, 1).
inline double UnitOf(uint64_t random) { return static_cast<double>(random >> 11) * 0x1p-53; }

}  // namespace posenc
