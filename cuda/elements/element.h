// What makes a function an element: one compiler makes it for the CPU, where it is tested, and another for the device.
//
// Elements are the arithmetic of the kernels (cuda/kernels/), a number or a pair at a time. Nothing may be contracted
// into a fused multiply-add that is not written as fma().
#pragma once

#include <cstring>

#ifdef __CUDACC__
#define POSENC_ELEMENT __host__ __device__ __forceinline__
#else
#define POSENC_ELEMENT inline
#endif

namespace posenc::cuda {

// std::bit_cast is not for the device.
template <class To, class From>
POSENC_ELEMENT To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace posenc::cuda
