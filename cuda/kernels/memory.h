// Access to device memory: elements at any address, and 16-byte vectors.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/elements/element.h"

namespace posenc::cuda {

constexpr unsigned kVectorBytes = 16;

inline bool IsAligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Access to an element at any address. `aligned`, the same for all threads: addresses are multiples of sizeof(Bits).
template <class Bits>
__device__ Bits LoadElement(const unsigned char* from, bool aligned) {
  if (aligned) return *reinterpret_cast<const Bits*>(from);
  Bits bits;
  memcpy(&bits, from, sizeof(bits));
  return bits;
}
template <class Bits>
__device__ void StoreElement(Bits bits, unsigned char* to, bool aligned) {
  if (aligned) {
    *reinterpret_cast<Bits*>(to) = bits;
  } else {
    memcpy(to, &bits, sizeof(bits));
  }
}

// Elements that a thread processes at once: 16 bytes if they are adjacent in memory.
template <class Bits, unsigned kCount = kVectorBytes / sizeof(Bits)>
struct Vector {
  static constexpr unsigned kElements = kCount;
  Bits element[kElements];
};
template <class Bits>
__device__ Vector<Bits> LoadVector(const unsigned char* from) {
  const uint4 bytes = *reinterpret_cast<const uint4*>(from);
  return BitCast<Vector<Bits>>(bytes);
}
template <class Bits>
__device__ void StoreVector(const Vector<Bits>& vector, unsigned char* to) {
  *reinterpret_cast<uint4*>(to) = BitCast<uint4>(vector);
}

// Loads kCount numbers through the read-only cache: no kernel in flight may write them. `from` is aligned to 16 bytes,
// or to the size of all the numbers if that is less.
template <unsigned kCount, class T>
__device__ void LoadConstants(const T* from, T (&to)[kCount]) {
  constexpr unsigned kBytes = kCount * sizeof(T), kWords = kBytes / sizeof(uint4);
  if constexpr (kWords > 0) {
#pragma unroll
    for (unsigned i = 0; i < kWords; ++i) {
      const uint4 word = __ldg(reinterpret_cast<const uint4*>(from) + i);
      memcpy(to + i * sizeof(uint4) / sizeof(T), &word, sizeof(word));
    }
  } else if constexpr (kBytes == sizeof(uint2)) {
    const uint2 word = __ldg(reinterpret_cast<const uint2*>(from));
    memcpy(to, &word, sizeof(word));
  } else {
    static_assert(kBytes == sizeof(unsigned));
    const unsigned word = __ldg(reinterpret_cast<const unsigned*>(from));
    memcpy(to, &word, sizeof(word));
  }
}

}  // namespace posenc::cuda
