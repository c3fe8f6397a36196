// Fast path of the rotation: FP32 tables, the same pairing in and out, all in whole aligned 16-byte vectors.
//
// A thread has a unit of a head row: half-split, one vector of each half; interleaved, one vector. It loads the unit's
// cosines and sines once and rotates that unit of one head after the other, kVectorsAtOnce vectors at a time.
#pragma once

#include "cuda/elements/pairing.h"
#include "cuda/elements/rotate.h"
#include "cuda/kernels/grid.h"
#include "cuda/kernels/memory.h"
#include "cuda/launch.h"

namespace posenc::cuda {

constexpr unsigned kVectorsAtOnce = 4;
// Enough threads to saturate the memory of the largest devices. With fewer, more threads share a token's heads.
constexpr uint64_t kThreadsWanted = uint64_t{1} << 19;

template <class Format, posenc_pairing kPairing>
struct RowUnit {
  using Elements = Vector<typename Format::Bits>;
  static constexpr unsigned kVectors = kPairing == POSENC_HALF_SPLIT ? 2 : 1;
  static constexpr unsigned kPairs = kVectors * Elements::kElements / 2;
  static constexpr unsigned kHeadsAtOnce = kVectorsAtOnce / kVectors;

  Elements vector[kVectors];

  __device__ ElementPair<Format> Pair(unsigned k) const {
    if constexpr (kPairing == POSENC_HALF_SPLIT) return {vector[0].element[k], vector[1].element[k]};
    return {vector[0].element[2 * k], vector[0].element[2 * k + 1]};
  }
  __device__ void SetPair(unsigned k, ElementPair<Format> pair) {
    const bool halves = kPairing == POSENC_HALF_SPLIT;
    vector[0].element[halves ? k : 2 * k] = pair.first;
    vector[kVectors - 1].element[halves ? k : 2 * k + 1] = pair.second;
  }
};

template <class Format>
uint64_t UnrotatedVectors(const RotateArguments& work) {
  if (work.x == work.y) return 0;
  return (work.head_dim - 2 * work.pairs) * sizeof(typename Format::Bits) / kVectorBytes;
}

// Rotates unit `unit` of the token's heads [head, head_end).
template <class Format, posenc_pairing kPairing, posenc_rounding kRounding>
__device__ void RotateUnit(const RotateArguments& work, uint64_t token, uint64_t unit, uint64_t head,
                           uint64_t head_end) {
  using Unit = RowUnit<Format, kPairing>;
  constexpr unsigned kHeadsAtOnce = Unit::kHeadsAtOnce;
  constexpr Format kFormat;
  constexpr unsigned kElement = sizeof(typename Format::Bits);
  const uint64_t pair = unit * Unit::kPairs;
  float cos[Unit::kPairs], sin[Unit::kPairs];
  LoadConstants(static_cast<const float*>(work.cos) + token * work.pairs + pair, cos);
  LoadConstants(static_cast<const float*>(work.sin) + token * work.pairs + pair, sin);
  const PairPlace place = PlaceOf(kPairing, work.pairs / work.half_split_parts, pair);
  const uint64_t second = (place.second - place.first) * kElement;  // byte offset of a half-split unit's 2nd vector
  uint64_t start = token * work.token_stride + head * work.head_stride + (work.rotary_offset + place.first) * kElement;
  for (; head < head_end; head += kHeadsAtOnce) {
    Unit units[kHeadsAtOnce];
    uint64_t from = start;
#pragma unroll
    for (unsigned i = 0; i < kHeadsAtOnce; ++i, from += work.head_stride) {
      if (head + i >= head_end) continue;
#pragma unroll
      for (unsigned v = 0; v < Unit::kVectors; ++v) {
        units[i].vector[v] =
            LoadVector<typename Format::Bits>(static_cast<const unsigned char*>(work.x) + from + v * second);
      }
    }
#pragma unroll
    for (unsigned i = 0; i < kHeadsAtOnce; ++i, start += work.head_stride) {
      if (head + i >= head_end) continue;
#pragma unroll
      for (unsigned k = 0; k < Unit::kPairs; ++k) {
        units[i].SetPair(k, Rotated(kFormat, kRounding, units[i].Pair(k), cos[k], sin[k]));
      }
#pragma unroll
      for (unsigned v = 0; v < Unit::kVectors; ++v) {
        StoreVector(units[i].vector[v], static_cast<unsigned char*>(work.y) + start + v * second);
      }
    }
  }
}

template <class Format>
__device__ void CopyVector(const RotateArguments& work, uint64_t token, uint64_t vector, uint64_t head,
                           uint64_t head_end) {
  using Bits = typename Format::Bits;
  uint64_t place = token * work.token_stride + vector * kVectorBytes;
  if (vector * kVectorBytes >= work.rotary_offset * sizeof(Bits)) place += 2 * work.pairs * sizeof(Bits);
  for (; head < head_end; ++head) {
    const uint64_t start = place + head * work.head_stride;
    StoreVector(LoadVector<Bits>(static_cast<const unsigned char*>(work.x) + start),
                static_cast<unsigned char*>(work.y) + start);
  }
}

// Rotates and copies columns: a head row's columns are first its units, then its unrotated vectors.
template <class Format, posenc_pairing kPairing, posenc_rounding kRounding>
__global__ void __launch_bounds__(kBlockThreads, kLeastBlocks)
    RotateVectors(const RotateArguments work, unsigned units, unsigned columns, uint64_t heads_each) {
  const uint64_t head = blockIdx.y * heads_each, head_end = min(head + heads_each, work.heads);
  for (uint64_t token = uint64_t{blockIdx.x} * blockDim.y + threadIdx.y; token < work.tokens;
       token += uint64_t{gridDim.x} * blockDim.y) {
    for (unsigned i = threadIdx.x; i < columns; i += blockDim.x) {
      if (i < units) {
        RotateUnit<Format, kPairing, kRounding>(work, token, i, head, head_end);
      } else {
        CopyVector<Format>(work, token, i - units, head, head_end);
      }
    }
  }
}

inline bool TakesVectors(const RotateArguments& work) {
  if (work.table_is_double || work.input_pairing != work.output_pairing) return false;
  const uint64_t element = work.dtype == POSENC_FP32 ? 4 : 2, vector = kVectorBytes / element;
  const bool halves = work.input_pairing == POSENC_HALF_SPLIT;
  const uint64_t unit = halves ? work.half_split_parts * vector : vector / 2;
  const auto whole = [](uint64_t bytes) { return bytes % kVectorBytes == 0; };
  for (const void* pointer : {work.x, static_cast<const void*>(work.y), work.cos, work.sin}) {
    if (!IsAligned(pointer, kVectorBytes)) return false;
  }
  return work.head_dim <= 0xffffffff && work.pairs % unit == 0 && whole(work.rotary_offset * element) &&
         whole(work.token_stride) && whole(work.head_stride) && (work.x == work.y || whole(work.head_dim * element));
}

template <class Format, posenc_pairing kPairing>
void LaunchVectors(const RotateArguments& work, cudaStream_t stream) {
  const uint64_t units = work.pairs / RowUnit<Format, kPairing>::kPairs;
  const uint64_t columns = units + UnrotatedVectors<Format>(work);
  if (columns == 0) return;
  const auto narrow_units = static_cast<unsigned>(units), narrow_columns = static_cast<unsigned>(columns);
  constexpr uint64_t kHeadsAtOnce = RowUnit<Format, kPairing>::kHeadsAtOnce;
  const dim3 block = Block(columns, work.tokens);
  const uint64_t most = Quotient(work.heads, kHeadsAtOnce);
  const uint64_t wanted = std::min(Quotient(kThreadsWanted, work.tokens * columns), kMostBlocksY);
  const uint64_t chunks = std::clamp<uint64_t>(wanted, 1, most);
  const uint64_t heads_each = Quotient(most, chunks) * kHeadsAtOnce;
  const dim3 grid = Grid(Quotient(work.tokens, block.y), Quotient(work.heads, heads_each));
  if (work.rounding == POSENC_ROUND_ONCE) {
    RotateVectors<Format, kPairing, POSENC_ROUND_ONCE>
        <<<grid, block, 0, stream>>>(work, narrow_units, narrow_columns, heads_each);
  } else {
    RotateVectors<Format, kPairing, POSENC_ROUND_EACH_OPERATION>
        <<<grid, block, 0, stream>>>(work, narrow_units, narrow_columns, heads_each);
  }
}

inline cudaError_t LaunchVectors(const RotateArguments& work, cudaStream_t stream) {
  return WithFormat(work.dtype, [&](auto format) {
    using Format = decltype(format);
    if (work.input_pairing == POSENC_HALF_SPLIT) {
      LaunchVectors<Format, POSENC_HALF_SPLIT>(work, stream);
    } else {
      LaunchVectors<Format, POSENC_INTERLEAVED>(work, stream);
    }
  });
}

}  // namespace posenc::cuda
