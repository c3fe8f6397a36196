// Tables of cosines and sines. A thread computes one entry at a time, of one pair.
#include "cuda/elements/table.h"

#include "cuda/kernels/grid.h"
#include "cuda/launch.h"

namespace posenc::cuda {
namespace {

__device__ void Store(posenc_dtype dtype, double value, void* to, uint64_t index) {
  if (dtype == POSENC_FP64) {
    static_cast<double*>(to)[index] = value;
  } else {
    static_cast<float*>(to)[index] = static_cast<float>(value);  // exact: the value is rounded to a narrower type
  }
}

// kWide is that of FirstRounded.
template <posenc_frequencies kFrequencies, bool kWide>
__global__ void __launch_bounds__(kBlockThreads) Fill(const TableArguments work, TableRecipe recipe) {
  recipe.frequencies = kFrequencies;  // the compiler drops what other frequencies need
  for (uint64_t pair = uint64_t{blockIdx.y} * blockDim.x + threadIdx.x; pair < work.pairs;
       pair += uint64_t{gridDim.y} * blockDim.x) {
    const double inv_freq = work.inv_freq[pair];
    const double* positions = work.positions + (work.axis != nullptr ? work.axis[pair] * work.rows : 0);
    for (uint64_t row = uint64_t{blockIdx.x} * blockDim.y + threadIdx.y; row < work.rows;
         row += uint64_t{gridDim.x} * blockDim.y) {
      const uint64_t index = row * work.pairs + pair;
      Entry entry;
      if (!FirstRounded<kWide>(recipe, PositionIn(recipe.frequencies, positions[row]), inv_freq, entry)) {
        const unsigned long long place = atomicAdd(work.unproven_count, 1ull);
        if (place < work.capacity) work.unproven[place] = index;
      }
      entry = Finished(recipe, entry);
      Store(recipe.dtype, entry.cos, work.cos, index);
      Store(recipe.dtype, entry.sin, work.sin, index);
    }
  }
}

template <class Format>
__device__ typename Format::Bits Narrowed(Format format, const void* wide, uint64_t index) {
  return Encode(format, static_cast<const float*>(wide)[index]);
}

// Narrows entries [first, last). No result may overlap another entry of that range.
template <class Format>
__global__ void __launch_bounds__(kBlockThreads)
    Narrow(Format format, const void* wide, void* narrow, uint64_t first, uint64_t last) {
  for (uint64_t i = first + uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < last;
       i += uint64_t{gridDim.x} * blockDim.x) {
    static_cast<typename Format::Bits*>(narrow)[i] = Narrowed(format, wide, i);
  }
}

// Narrows entries [0, count) in place, at most as many as a block has threads.
template <class Format>
__global__ void __launch_bounds__(kBlockThreads)
    NarrowFirst(Format format, const void* wide, void* narrow, uint64_t count) {
  typename Format::Bits bits{};
  if (threadIdx.x < count) bits = Narrowed(format, wide, threadIdx.x);
  __syncthreads();
  if (threadIdx.x < count) static_cast<typename Format::Bits*>(narrow)[threadIdx.x] = bits;
}

}  // namespace

cudaError_t LaunchTable(const TableArguments& work, cudaStream_t stream) {
  if (work.rows == 0 || work.pairs == 0) return cudaSuccess;
  const TableRecipe recipe = {work.dtype,          work.frequencies, {work.scale_hi, work.scale_lo},
                              work.scale_in_range, work.zero_cos,    work.scale,
                              work.divide,         work.negate_sin};
  const dim3 block = Block(work.pairs, work.rows);
  const uint64_t columns = Quotient(work.pairs, block.x);
  const dim3 grid = Grid(std::min(Quotient(work.rows, block.y), Quotient(kBlocksWanted, columns)), columns);
  switch (work.frequencies) {
    case POSENC_EXACT:
      if (IsWide(work.frequencies, work.dtype)) {
        Fill<POSENC_EXACT, true><<<grid, block, 0, stream>>>(work, recipe);
      } else {
        Fill<POSENC_EXACT, false><<<grid, block, 0, stream>>>(work, recipe);
      }
      break;
    case POSENC_FLOAT32: Fill<POSENC_FLOAT32, false><<<grid, block, 0, stream>>>(work, recipe); break;
    case POSENC_FLOAT64: Fill<POSENC_FLOAT64, true><<<grid, block, 0, stream>>>(work, recipe); break;
    default: return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

cudaError_t LaunchNarrow(posenc_dtype dtype, const void* wide, void* narrow, uint64_t count, cudaStream_t stream) {
  if (dtype == POSENC_FP32 || dtype == POSENC_FP64) {
    const uint64_t element = dtype == POSENC_FP64 ? sizeof(double) : sizeof(float);
    return wide == narrow ? cudaSuccess : cudaMemcpyAsync(narrow, wide, count * element, cudaMemcpyDefault, stream);
  }
  return WithFormat(dtype, [&](auto format) {
    const auto launch = [&](uint64_t first, uint64_t last) {
      if (first == last) return;
      Narrow<<<Grid(Quotient(last - first, kBlockThreads)), kBlockThreads, 0, stream>>>(format, wide, narrow, first,
                                                                                        last);
    };
    if (wide != narrow) return launch(0, count);
    // Result i overwrites part of entry i / 2, which an earlier launch must have read. So each launch narrows as many
    // entries as all launches before it.
    if (count > 0) NarrowFirst<<<1, kBlockThreads, 0, stream>>>(format, wide, narrow, count);
    for (uint64_t first = kBlockThreads; first < count; first *= 2) launch(first, std::min(2 * first, count));
  });
}

}  // namespace posenc::cuda
