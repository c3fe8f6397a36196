// Biases with a mask. A thread computes the cells of several keys (16 bytes of them, if vectors fit) for a few queries
// at once, and keeps these keys for the next queries.
#include "cuda/elements/bias.h"

#include "cuda/kernels/bias_keys.h"
#include "cuda/kernels/grid.h"
#include "cuda/kernels/memory.h"
#include "cuda/launch.h"

namespace posenc::cuda {
namespace {

constexpr unsigned kQueriesAtOnce = 4;
// Keys per thread. Keys that are not adjacent are limited to 4: more would lower the occupancy too far.
template <class Format, bool kVectors>
constexpr unsigned kKeysAtOnce = kVectors ? Vector<typename Format::Bits>::kElements : 4;

// Float needs fewer registers, so that more threads can hide the memory's latency.
template <class Real>
constexpr unsigned kResidentBlocks = sizeof(Real) == sizeof(float) ? 6 : kLeastBlocks;

enum class Source { kLinear, kRows, kGathered, kNone };

template <class Real>
__device__ Query<Real> LoadQuery(const Query<Real>* from) {
  Real numbers[sizeof(Query<Real>) / sizeof(Real)];
  LoadConstants(&from->position, numbers);
  return {numbers[0], numbers[1], numbers[2], numbers[3]};
}

template <class Real>
__device__ bool Visible(const BiasArguments<Real>& work, const Query<Real>& query, uint64_t key) {
  const Real position = work.mask_key_positions != nullptr ? work.mask_key_positions[key] : Real{0};
  const uint8_t valid = work.key_valid != nullptr ? work.key_valid[key] : 1;
  return Within(query, MaskPosition(position, valid)) &&
         (work.key_documents == nullptr || work.key_documents[key] == query.document);
}

// Marks the rows without a visible key: their lowest position becomes a NaN. A block per row.
template <class Real>
__global__ void __launch_bounds__(kBlockThreads) MarkFullyMasked(const BiasArguments<Real> work) {
  constexpr unsigned kKeysBetweenMeetings = 8;
  for (uint64_t row = blockIdx.x; row < work.queries; row += gridDim.x) {
    const Query<Real> query = work.query[row];
    bool any = false;
    for (uint64_t first = threadIdx.x; !any && first - threadIdx.x < work.keys;
         first += kKeysBetweenMeetings * blockDim.x) {
      bool visible = false;
#pragma unroll
      for (unsigned k = 0; k < kKeysBetweenMeetings; ++k) {
        const uint64_t key = first + k * blockDim.x;
        visible |= key < work.keys && Visible(work, query, key);
      }
      any = __syncthreads_or(visible);
    }
    if (!any && threadIdx.x == 0) work.query[row].lowest = NAN;
  }
}

// Access to the cells of the keys. `first` is the address of the first of them.
template <class Bits, bool kVectors, unsigned kCells>
__device__ Vector<Bits, kCells> LoadCells(const Keys<kCells, kVectors>& keys, const unsigned char* first,
                                          bool aligned) {
  if constexpr (kVectors) return LoadVector<Bits>(first);
  Vector<Bits, kCells> cells{};
#pragma unroll
  for (unsigned k = 0; k < kCells; ++k) {
    if (keys.Has(k)) cells.element[k] = LoadElement<Bits>(first + k * keys.step * sizeof(Bits), aligned);
  }
  return cells;
}

template <class Bits, bool kVectors, unsigned kCells>
__device__ void StoreCells(const Keys<kCells, kVectors>& keys, const Vector<Bits, kCells>& cells, unsigned char* first,
                           bool aligned) {
  if constexpr (kVectors) {
    StoreVector(cells, first);
  } else {
#pragma unroll
    for (unsigned k = 0; k < kCells; ++k) {
      if (keys.Has(k)) StoreElement(cells.element[k], first + k * keys.step * sizeof(Bits), aligned);
    }
  }
}

template <class Format, unsigned kCells>
__device__ Vector<typename Format::Bits, kCells> EncodeCells(Format format, const float (&cells)[kCells]) {
  Vector<typename Format::Bits, kCells> encoded;
  if constexpr (sizeof(encoded) == sizeof(cells)) {
    memcpy(&encoded, cells, sizeof(encoded));
  } else {
#pragma unroll
    for (unsigned k = 0; k < kCells; k += 2) {
      const uint32_t pair = EncodePair(format, cells[k], cells[k + 1]);
      memcpy(&encoded.element[k], &pair, sizeof(pair));
    }
  }
  return encoded;
}

template <class Format, Source kSource, bool kVectors, class Real>
__global__ void __launch_bounds__(kBlockThreads, kResidentBlocks<Real>)
    Bias(const BiasArguments<Real> work, bool aligned) {
  using Bits = typename Format::Bits;
  constexpr Format kFormat;
  constexpr unsigned kCells = kKeysAtOnce<Format, kVectors>;
  constexpr bool kByPositions = kSource == Source::kLinear || kSource == Source::kGathered;
  const uint64_t row_bytes = work.keys * sizeof(Bits);
  const uint64_t tile = uint64_t{blockIdx.x} * blockDim.x * kCells;
  const Keys<kCells, kVectors> keys = {tile + threadIdx.x * (kVectors ? kCells : 1), kVectors ? 1 : blockDim.x,
                                       work.keys};
  if (!keys.Has(0)) return;  // No loop over tiles: memory ends before the grid's limit.
  Real positions[kCells] = {}, mask_positions[kCells] = {}, documents[kCells] = {};
  if constexpr (kByPositions) keys.Load(work.key_positions, positions);
  keys.Load(work.mask_key_positions, mask_positions);
  keys.Load(work.key_documents, documents);
  if (work.key_valid != nullptr) {
    uint8_t valid[kCells] = {};
    keys.Load(work.key_valid, valid);
#pragma unroll
    for (unsigned k = 0; k < kCells; ++k) mask_positions[k] = MaskPosition(mask_positions[k], valid[k]);
  }

  for (uint64_t first = blockIdx.y * kQueriesAtOnce; first < work.queries; first += gridDim.y * kQueriesAtOnce) {
    const auto rows = static_cast<unsigned>(min(work.queries - first, uint64_t{kQueriesAtOnce}));
    const uint64_t begin = first * row_bytes + keys.first * sizeof(Bits);
    // All scores are loaded before the first store: scores and out may be the same memory. Loads repeat the last row.
    Query<Real> query[kQueriesAtOnce];
    Vector<Bits, kCells> scores[kQueriesAtOnce];
#pragma unroll
    for (unsigned i = 0; i < kQueriesAtOnce; ++i) {
      const unsigned row = min(i, rows - 1);
      query[i] = LoadQuery(work.query + first + row);
      if (work.scores == nullptr) continue;
      scores[i] =
          LoadCells<Bits>(keys, static_cast<const unsigned char*>(work.scores) + begin + row * row_bytes, aligned);
    }
#pragma unroll
    for (unsigned i = 0; i < kQueriesAtOnce; ++i) {
      if (i >= rows) break;
      float cells[kCells] = {};
      if constexpr (kSource == Source::kLinear) {
#pragma unroll
        for (unsigned k = 0; k < kCells; ++k) {
          cells[k] = LinearBias(work.past_slope, work.future_slope, query[i].position, positions[k]);
        }
        RoundCells(work.bias_dtype, cells);
      } else if constexpr (kSource == Source::kGathered) {
        const bool cls_query = work.cls_query && first + i == 0;
#pragma unroll
        for (unsigned k = 0; k < kCells; ++k) {
          if (!keys.Has(k)) continue;
          const bool cls_key = work.cls_key && keys[k] == 0;
          cells[k] = __ldg(work.values +
                           ValueOf(cls_query, cls_key, work.value_count, work.first, query[i].position, positions[k]));
        }
      } else if constexpr (kSource == Source::kRows) {
        keys.LoadShifted(work.bias + static_cast<int64_t>(first + i) * work.bias_stride, cells);
      }
      if (work.scores != nullptr) {
        AddScores(kFormat, kSource != Source::kNone, work.rounding, scores[i].element, cells);
      }
      if (work.masked) {
        const bool fully_masked = work.zero_fully_masked_rows && query[i].lowest != query[i].lowest;
        const float fill = fully_masked ? 0 : work.fill;
#pragma unroll
        for (unsigned k = 0; k < kCells; ++k) cells[k] = Within(query[i], mask_positions[k]) ? cells[k] : fill;
        if (work.key_documents != nullptr) {
#pragma unroll
          for (unsigned k = 0; k < kCells; ++k) cells[k] = documents[k] == query[i].document ? cells[k] : fill;
        }
      }
      StoreCells(keys, EncodeCells(kFormat, cells), static_cast<unsigned char*>(work.out) + begin + i * row_bytes,
                 aligned);
    }
  }
}

// Returns true if rows of cells are whole vectors, and the matrices and the per-key arrays are 16-byte aligned.
template <class Real>
bool TakesVectors(const BiasArguments<Real>& work, uint64_t cells) {
  const auto aligned = [](auto... pointers) { return (IsAligned(pointers, kVectorBytes) && ...); };
  return work.keys % cells == 0 && aligned(work.scores, work.out, work.key_valid, work.key_positions,
                                           work.mask_key_positions, work.key_documents);
}

template <class Format, Source kSource, bool kVectors, class Real>
void LaunchTiles(const BiasArguments<Real>& work, cudaStream_t stream) {
  constexpr uint64_t kCells = kKeysAtOnce<Format, kVectors>, kElement = sizeof(typename Format::Bits);
  const bool aligned = IsAligned(work.scores, kElement) && IsAligned(work.out, kElement);
  // Fewest whole warps that cover a row, up to kBlockThreads.
  const uint64_t warps = Quotient(Quotient(work.keys, kCells), 32);
  const auto threads = static_cast<unsigned>(std::min<uint64_t>(warps * 32, kBlockThreads));
  const uint64_t tiles = Quotient(work.keys, threads * kCells);
  const uint64_t rows = std::min(Quotient(work.queries, kQueriesAtOnce), Quotient(kBlocksWanted, tiles));
  Bias<Format, kSource, kVectors><<<Grid(tiles, rows), threads, 0, stream>>>(work, aligned);
}

template <class Format, Source kSource, class Real>
void LaunchBiasFrom(const BiasArguments<Real>& work, cudaStream_t stream) {
  if (TakesVectors(work, kKeysAtOnce<Format, true>)) {
    LaunchTiles<Format, kSource, true>(work, stream);
  } else {
    LaunchTiles<Format, kSource, false>(work, stream);
  }
}

}  // namespace

template <class Real>
cudaError_t LaunchBias(const BiasArguments<Real>& work, cudaStream_t stream) {
  if (work.queries == 0 || work.keys == 0) return cudaSuccess;
  if (work.masked && work.zero_fully_masked_rows) {
    MarkFullyMasked<<<Grid(work.queries), kBlockThreads, 0, stream>>>(work);
  }
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

template cudaError_t LaunchBias(const BiasArguments<float>& work, cudaStream_t stream);
template cudaError_t LaunchBias(const BiasArguments<double>& work, cudaStream_t stream);

}  // namespace posenc::cuda
