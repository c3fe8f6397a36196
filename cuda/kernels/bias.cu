// Biases with a mask. A thread computes the cells of several keys (16 bytes of them, if vectors fit) and queries.
#include "cuda/elements/bias.h"

#include "cuda/kernels/bias_keys.h"
#include "cuda/kernels/grid.h"
#include "cuda/kernels/memory.h"
#include "cuda/launch.h"

namespace posenc::cuda {
namespace {

constexpr uint64_t kQueriesAtOnce = 4;
// Keys per thread. Keys that are not adjacent are limited to 4: more would lower the occupancy too far.
template <class Format, bool kVectors>
constexpr unsigned kKeysAtOnce = kVectors ? Vector<typename Format::Bits>::kElements : 4;

// Enough blocks to keep the largest devices busy.
constexpr uint64_t kBlocksWanted = 2048;

enum class Source { kLinear, kRows, kGathered, kNone };

__device__ RowMask MaskOf(const BiasArguments& work, uint64_t query) {
  RowMask row;
  if (work.mask_key_positions != nullptr) {
    SetBounds({work.window_left, work.window_right, work.causal, work.prefix_end}, work.mask_query_positions[query],
              row);
  }
  if (work.key_documents != nullptr) row.document = work.query_documents[query];
  return row;
}

__device__ KeyMask MaskOfKey(const BiasArguments& work, uint64_t key) {
  KeyMask mask;
  if (work.mask_key_positions != nullptr) mask.position = work.mask_key_positions[key];
  if (work.key_documents != nullptr) mask.document = work.key_documents[key];
  if (work.key_valid != nullptr) mask.valid = work.key_valid[key];
  return mask;
}

// Returns true if the row has a visible key. All threads of a block must call it, and all get the same result.
__device__ bool AnyVisible(const BiasArguments& work, const RowMask& row) {
  constexpr unsigned kKeysBetweenMeetings = 8;
  for (uint64_t first = threadIdx.x; first - threadIdx.x < work.keys; first += kKeysBetweenMeetings * blockDim.x) {
    bool visible = false;
#pragma unroll
    for (unsigned k = 0; k < kKeysBetweenMeetings; ++k) {
      const uint64_t key = first + k * blockDim.x;
      visible |= key < work.keys && Visible(row, MaskOfKey(work, key));
    }
    if (__syncthreads_or(visible)) return true;
  }
  return false;
}

// Returns the query rows of [query, query_end) without a visible key, to be filled with zeros: bit i is row query + i.
__device__ unsigned FindFullyMasked(const BiasArguments& work, uint64_t query, uint64_t query_end) {
  unsigned rows = 0;
  for (unsigned i = 0; query + i < query_end; ++i) rows |= AnyVisible(work, MaskOf(work, query + i)) ? 0u : 1u << i;
  return rows;
}

template <class Bits, bool kVectors, unsigned kCells>
__device__ Vector<Bits, kCells> LoadCells(const Keys<kCells, kVectors>& keys, const unsigned char* row, bool aligned) {
  Vector<Bits, kCells> cells{};
  if constexpr (kVectors) {
    if (keys.Has(0)) cells = LoadVector<Bits>(row + keys[0] * sizeof(Bits));
  } else {
#pragma unroll
    for (unsigned k = 0; k < kCells; ++k) {
      if (keys.Has(k)) cells.element[k] = LoadElement<Bits>(row + keys[k] * sizeof(Bits), aligned);
    }
  }
  return cells;
}

template <class Bits, bool kVectors, unsigned kCells>
__device__ void StoreCells(const Keys<kCells, kVectors>& keys, const Vector<Bits, kCells>& cells, unsigned char* row,
                           bool aligned) {
  if constexpr (kVectors) {
    if (keys.Has(0)) StoreVector(cells, row + keys[0] * sizeof(Bits));
  } else {
#pragma unroll
    for (unsigned k = 0; k < kCells; ++k) {
      if (keys.Has(k)) StoreElement(cells.element[k], row + keys[k] * sizeof(Bits), aligned);
    }
  }
}

// Computes the keys' cells in query rows [query, query_end), at most kQueriesAtOnce. Rows of `fully_masked` get zeros.
template <class Format, Source kSource, bool kVectors, unsigned kCells>
__device__ void BiasCells(const BiasArguments& work, bool aligned, bool masked, const Keys<kCells, kVectors>& keys,
                          uint64_t query, uint64_t query_end, unsigned fully_masked) {
  using Bits = typename Format::Bits;
  constexpr Format kFormat;
  const uint64_t row_bytes = work.keys * sizeof(Bits);
  double positions[kCells] = {}, mask_positions[kCells] = {}, documents[kCells] = {};
  uint8_t valid[kCells];
  memset(valid, 1, sizeof(valid));
  if (kSource == Source::kLinear || kSource == Source::kGathered) keys.Load(work.key_positions, positions);
  keys.Load(work.mask_key_positions, mask_positions);
  keys.Load(work.key_documents, documents);
  keys.Load(work.key_valid, valid);
  const Bits fill = Encode(kFormat, work.fill);
  const CellKind kind = {work.rounding, work.scores != nullptr, kSource != Source::kNone};

  // All scores are loaded before the first store: scores and out may be the same memory.
  Vector<Bits, kCells> scores[kQueriesAtOnce] = {};
#pragma unroll
  for (unsigned i = 0; i < kQueriesAtOnce; ++i) {
    if (work.scores == nullptr || query + i >= query_end) continue;
    const auto* row = static_cast<const unsigned char*>(work.scores) + (query + i) * row_bytes;
    scores[i] = LoadCells<Bits>(keys, row, aligned);
  }
#pragma unroll
  for (unsigned i = 0; i < kQueriesAtOnce; ++i) {
    if (query + i >= query_end) continue;
    float bias[kCells] = {};
    if constexpr (kSource == Source::kLinear) {
      const double position = work.query_positions[query + i];
#pragma unroll
      for (unsigned k = 0; k < kCells; ++k) {
        bias[k] = LinearBias({work.past_slope, work.future_slope, work.bias_dtype}, position, positions[k]);
      }
    } else if constexpr (kSource == Source::kGathered) {
      const double position = work.query_positions[query + i];
      const bool cls_query = work.cls_query && query + i == 0;
#pragma unroll
      for (unsigned k = 0; k < kCells; ++k) {
        if (!keys.Has(k)) continue;
        const bool cls_key = work.cls_key && keys[k] == 0;
        bias[k] =
            __ldg(work.values + ValueOf(cls_query, cls_key, work.value_count, work.first, position, positions[k]));
      }
    } else if constexpr (kSource == Source::kRows) {
      keys.LoadShifted(work.bias + static_cast<int64_t>(query + i) * work.bias_stride, bias);
    }
    const RowMask row = MaskOf(work, query + i);
    Vector<Bits, kCells> cells;
#pragma unroll
    for (unsigned k = 0; k < kCells; ++k) {
      cells.element[k] = Cell(kFormat, kind, scores[i].element[k], bias[k]);
      if (masked && !Visible(row, {mask_positions[k], documents[k], valid[k]})) cells.element[k] = fill;
    }
    if (fully_masked >> i & 1) cells = {};
    StoreCells(keys, cells, static_cast<unsigned char*>(work.out) + (query + i) * row_bytes, aligned);
  }
}

template <class Format, Source kSource, bool kVectors>
__global__ void __launch_bounds__(kBlockThreads, kLeastBlocks)
    Bias(const BiasArguments work, bool aligned, bool masked) {
  constexpr unsigned kCells = kKeysAtOnce<Format, kVectors>;
  const uint64_t tile = uint64_t{blockDim.x} * kCells;
  for (uint64_t query = blockIdx.y * kQueriesAtOnce; query < work.queries; query += gridDim.y * kQueriesAtOnce) {
    const uint64_t query_end = min(query + kQueriesAtOnce, work.queries);
    const bool zeros = masked && work.zero_fully_masked_rows;
    const unsigned fully_masked = zeros ? FindFullyMasked(work, query, query_end) : 0;
    for (uint64_t begin = blockIdx.x * tile; begin < work.keys; begin += gridDim.x * tile) {
      const Keys<kCells, kVectors> keys = {begin + threadIdx.x * (kVectors ? kCells : 1), kVectors ? 1 : blockDim.x,
                                           work.keys};
      BiasCells<Format, kSource>(work, aligned, masked, keys, query, query_end, fully_masked);
    }
  }
}

// Returns true if rows of cells are whole vectors, and the matrices and the per-key arrays are 16-byte aligned.
bool TakesVectors(const BiasArguments& work, uint64_t cells) {
  for (const void* pointer :
       {work.scores, static_cast<const void*>(work.out), static_cast<const void*>(work.key_valid),
        static_cast<const void*>(work.key_positions), static_cast<const void*>(work.mask_key_positions),
        static_cast<const void*>(work.key_documents)}) {
    if (!IsAligned(pointer, kVectorBytes)) return false;
  }
  return work.keys % cells == 0;
}

template <class Format, Source kSource, bool kVectors>
void LaunchTiles(const BiasArguments& work, cudaStream_t stream) {
  constexpr uint64_t kCells = kKeysAtOnce<Format, kVectors>, kElement = sizeof(typename Format::Bits);
  const bool aligned = IsAligned(work.scores, kElement) && IsAligned(work.out, kElement);
  const bool masked = work.mask_key_positions != nullptr || work.key_documents != nullptr || work.key_valid != nullptr;
  // Fewest whole warps that cover a row, up to kBlockThreads.
  const uint64_t warps = Quotient(Quotient(work.keys, kCells), 32);
  const auto threads = static_cast<unsigned>(std::min<uint64_t>(warps * 32, kBlockThreads));
  // Every block repeats the search for fully masked rows, so a row gets no more blocks than the device needs.
  const uint64_t tiles = Quotient(work.keys, threads * kCells), rows = Quotient(work.queries, kQueriesAtOnce);
  const uint64_t enough = std::clamp<uint64_t>(Quotient(kBlocksWanted, rows), 1, tiles);
  const dim3 grid = Grid(masked && work.zero_fully_masked_rows ? enough : tiles, rows);
  Bias<Format, kSource, kVectors><<<grid, threads, 0, stream>>>(work, aligned, masked);
}

template <class Format, Source kSource>
void LaunchBiasFrom(const BiasArguments& work, cudaStream_t stream) {
  if (TakesVectors(work, kKeysAtOnce<Format, true>)) {
    LaunchTiles<Format, kSource, true>(work, stream);
  } else {
    LaunchTiles<Format, kSource, false>(work, stream);
  }
}

}  // namespace

cudaError_t LaunchBias(const BiasArguments& work, cudaStream_t stream) {
  if (work.queries == 0 || work.keys == 0) return cudaSuccess;
  return WithFormat(work.dtype, [&](auto format) {
    using Format = decltype(format);
    if (work.values != nullptr) {
      LaunchBiasFrom<Format, Source::kGathered>(work, stream);
    } else if (work.key_positions != nullptr) {
      LaunchBiasFrom<Format, Source::kLinear>(work, stream);
    } else if (work.bias != nullptr) {
      LaunchBiasFrom<Format, Source::kRows>(work, stream);
    } else {
      LaunchBiasFrom<Format, Source::kNone>(work, stream);
    }
  });
}

}  // namespace posenc::cuda
