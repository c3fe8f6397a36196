// General rotation, one pair per thread: also FP64 tables, different pairings in and out, and unaligned data.
#pragma once

#include "cuda/elements/pairing.h"
#include "cuda/elements/rotate.h"
#include "cuda/kernels/grid.h"
#include "cuda/kernels/memory.h"
#include "cuda/launch.h"

namespace posenc::cuda {

// Shared memory per block without an opt-in, in bytes. A staged head row has at most 12288 rotated FP32 elements:
// kMostHeldInPlace in posenc/device/device.h.
constexpr uint64_t kStageBytes = 48 * 1024;

// `staged`: a pair's results overwrite other pairs' elements. The rotated elements of a head row are then staged in
// shared memory, and none is written before all are read.
template <class Format, class Real>
__global__ void __launch_bounds__(kBlockThreads) RotatePairwise(const RotateArguments work, bool aligned, bool staged) {
  using Bits = typename Format::Bits;
  extern __shared__ __align__(16) unsigned char stages[];
  const uint64_t rotated = 2 * work.pairs, half = work.pairs / work.half_split_parts;
  const uint64_t before = work.rotary_offset * sizeof(Bits);
  const uint64_t unrotated = work.x == work.y ? 0 : work.head_dim - rotated;
  unsigned char* stage = stages + threadIdx.y * rotated * sizeof(Bits);
  // All threads of a block run the same number of iterations, because __syncthreads needs all of them.
  for (uint64_t first = uint64_t{blockIdx.x} * blockDim.y; first < work.tokens;
       first += uint64_t{gridDim.x} * blockDim.y) {
    const uint64_t token = first + threadIdx.y;
    const bool active = token < work.tokens;
    const Real* cos = static_cast<const Real*>(work.cos) + token * work.pairs;
    const Real* sin = static_cast<const Real*>(work.sin) + token * work.pairs;
    for (uint64_t head = blockIdx.y; head < work.heads; head += gridDim.y) {
      const uint64_t start = token * work.token_stride + head * work.head_stride;
      const unsigned char* x = static_cast<const unsigned char*>(work.x) + start;
      unsigned char* y = static_cast<unsigned char*>(work.y) + start;
      const unsigned char* from = x + before;
      if (staged) {
        for (uint64_t i = threadIdx.x; active && i < rotated; i += blockDim.x) {
          StoreElement(LoadElement<Bits>(from + i * sizeof(Bits), aligned), stage + i * sizeof(Bits), true);
        }
        from = stage;
        __syncthreads();
      }
      for (uint64_t pair = threadIdx.x; active && pair < work.pairs; pair += blockDim.x) {
        const PairPlace in = PlaceOf(work.input_pairing, half, pair), out = PlaceOf(work.output_pairing, half, pair);
        const ElementPair<Format> elements = {LoadElement<Bits>(from + in.first * sizeof(Bits), aligned),
                                              LoadElement<Bits>(from + in.second * sizeof(Bits), aligned)};
        const ElementPair<Format> turned = Rotated(Format(), work.rounding, elements, cos[pair], sin[pair]);
        StoreElement(turned.first, y + before + out.first * sizeof(Bits), aligned);
        StoreElement(turned.second, y + before + out.second * sizeof(Bits), aligned);
      }
      for (uint64_t i = threadIdx.x; active && i < unrotated; i += blockDim.x) {
        const uint64_t place = (i < work.rotary_offset ? i : i + rotated) * sizeof(Bits);
        StoreElement(LoadElement<Bits>(x + place, aligned), y + place, aligned);
      }
      if (staged) __syncthreads();
    }
  }
}

// Returns cudaErrorNotSupported if a head row must be staged and exceeds kStageBytes.
inline cudaError_t LaunchPairwise(const RotateArguments& work, cudaStream_t stream) {
  const uint64_t element = work.dtype == POSENC_FP32 ? 4 : 2, row_bytes = 2 * work.pairs * element;
  const bool staged = work.x == work.y && work.input_pairing != work.output_pairing && work.pairs > 0;
  if (staged && row_bytes > kStageBytes) return cudaErrorNotSupported;
  const bool aligned = IsAligned(work.x, element) && IsAligned(work.y, element) && work.token_stride % element == 0 &&
                       work.head_stride % element == 0;
  const uint64_t most = staged ? kStageBytes / row_bytes : work.tokens;
  const dim3 block = Block(work.pairs, std::min(most, work.tokens));
  const dim3 grid = Grid(Quotient(work.tokens, block.y), work.heads);
  const auto bytes = static_cast<size_t>(staged ? block.y * row_bytes : 0);
  return WithFormat(work.dtype, [&](auto format) {
    using Format = decltype(format);
    if (work.table_is_double) {
      RotatePairwise<Format, double><<<grid, block, bytes, stream>>>(work, aligned, staged);
    } else {
      RotatePairwise<Format, float><<<grid, block, bytes, stream>>>(work, aligned, staged);
    }
  });
}

}  // namespace posenc::cuda
