// POSENC_ELEMENT marks a function that is compiled twice: for the CPU, where it is tested, and for the device.
//
// Elements are the arithmetic of the kernels (cuda/kernels/), for one or a few numbers. Compilers must not contract
// multiplications and additions into fused multiply-adds; only fma() fuses.
#pragma once

#include <cstring>

#ifdef __CUDACC__
#define POSENC_ELEMENT __host__ __device__ __forceinline__
#else
#define POSENC_ELEMENT inline
#endif

namespace posenc::cuda {

// std::bit_cast for device code, which cannot call it.
template <class To, class From>
POSENC_ELEMENT To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace posenc::cuda
