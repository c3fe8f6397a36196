// Loads of a bias kernel thread: its keys, once for several queries, and its cells of a given bias.
#pragma once

#include "cuda/elements/bias.h"
#include "cuda/kernels/memory.h"
#include "cuda/launch.h"

namespace posenc::cuda {

// The kCells keys first, first + step, ... of which those below `end` exist. With kVectors they are adjacent, fill a
// 16-byte vector of cells, and all or none of them exist.
template <unsigned kCells, bool kVectors>
struct Keys {
  uint64_t first;
  uint64_t step;
  uint64_t end;

  __device__ uint64_t operator[](unsigned k) const { return first + k * step; }
  __device__ bool Has(unsigned k) const { return kVectors ? first < end : (*this)[k] < end; }

  // Loads the keys' elements of `from`. Leaves `to` unchanged if `from` is null, and for keys that do not exist.
  template <class T>
  __device__ void Load(const T* from, T (&to)[kCells]) const {
    if (from == nullptr) return;
    if constexpr (kVectors) {
      if (first < end) LoadConstants(from + first, to);
    } else {
#pragma unroll
      for (unsigned k = 0; k < kCells; ++k) {
        if (Has(k)) to[k] = __ldg(from + (*this)[k]);
      }
    }
  }

  // Loads from a row without 16-byte alignment: whole vectors from the one that contains the first cell on, then
  // shifted to that cell. Loads cell by cell without kVectors, or where such a vector might reach beyond the row.
  __device__ void LoadShifted(const float* row, float (&to)[kCells]) const {
    const unsigned shift = reinterpret_cast<uintptr_t>(row + first) / sizeof(float) % 4;
    if (!kVectors || first < shift || first - shift + kCells + 4 > end) {
#pragma unroll
      for (unsigned k = 0; k < kCells; ++k) {
        if (Has(k)) to[k] = __ldg(row + (*this)[k]);
      }
      return;
    }
    float window[kCells + 4];
    LoadConstants(row + first - shift, window);
#pragma unroll
    for (unsigned k = 0; k < kCells; ++k) {
      const float even = shift & 2 ? window[k + 2] : window[k];
      const float odd = shift & 2 ? window[k + 3] : window[k + 1];
      to[k] = shift & 1 ? odd : even;
    }
  }
};

}  // namespace posenc::cuda
