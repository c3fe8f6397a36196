#include "posenc/kernels/rotate_pairs.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "posenc/line_allocator.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/rotate_pairs.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "posenc/kernels/rotate_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {

// Past the caches where both the place and the number of bytes are whole registers.
void CopyElements(const std::byte* x, std::byte* y, size_t bytes, bool large) {
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  if (!large || bytes % lanes != 0 || reinterpret_cast<uintptr_t>(y) % lanes != 0) {
    std::memcpy(y, x, bytes);
    return;
  }
  for (size_t i = 0; i < bytes; i += lanes) StoreRegister<true>(LoadBytes(d, x + i), d, y + i);
}

// Copies the elements before and after the rotated ones of one token's head rows.
void CopyUnrotated(const RotatePairs& work, size_t token) {
  const size_t element = SizeOf(work.dtype);
  const size_t before = work.rotary_offset * element;
  const size_t until = before + 2 * work.pairs * element;
  const size_t after = work.head_dim * element - until;
  if (work.x == work.y || before + after == 0) return;
  for (size_t head = 0; head < work.heads; ++head) {
    const size_t row = token * work.token_stride + head * work.head_stride;
    CopyElements(work.x + row, work.y + row, before, work.large);
    CopyElements(work.x + row + until, work.y + row + until, after, work.large);
  }
}

// To spread or part a table's row costs about as much as rotating two head rows saves.
constexpr size_t kHeadsToSpread = 4;

template <class Lane, class Format, class Loop>
HWY_NOINLINE void RotateRows(Format format, Loop loop, const RotatePairs& work, size_t begin, size_t end,
                             std::byte* scratch) {
  constexpr bool kAny = std::is_same_v<Loop, AnyLoop>;
  const AnyLoop any{work.input_pairing, work.output_pairing, work.rounding};
  const size_t before = work.rotary_offset * sizeof(typename Format::Bits);
  const size_t rotated = 2 * work.pairs * sizeof(typename Format::Bits);
  const size_t table_row = work.pairs * sizeof(Lane), spread_row = 4 * work.pairs;
  const size_t parts = Loop::kSpreadsTable ? 1 : work.half_split_parts;
  const size_t part = rotated / parts, table_part = table_row / parts;
  // A pair's results land on elements of other pairs: such a head row is read whole before it is written.
  const bool crosses = kAny && work.x == work.y && work.input_pairing != work.output_pairing;
  // Memory is walked through in its order: where a head's tokens lie together, tile by tile of tokens, whose tables
  // stay in the first-level cache.
  const bool heads_first = work.head_stride > work.token_stride;
  const size_t tile = heads_first ? std::max<size_t>(kSpreadFloats / spread_row, 1) : 1;
  const hn::ScalableTag<Lane> whole;
  Row row{};
  row.pairs = work.pairs / parts;
  for (size_t first = begin; first < end; first += tile) {
    const size_t last = std::min(first + tile, end);
    for (size_t token = first; token < last; ++token) {
      CopyUnrotated(work, token);
      if constexpr (Loop::kSpreadsTable) {
        SpreadTable(work, token, reinterpret_cast<float*>(scratch) + (token - first) * spread_row);
      }
      if constexpr (Loop::kPartsTable) {
        float* parted = reinterpret_cast<float*>(scratch) + (token - first) * spread_row;
        PartNeighbours(static_cast<const float*>(work.cos) + token * work.pairs, parts, work.pairs, parted);
        PartNeighbours(static_cast<const float*>(work.sin) + token * work.pairs, parts, work.pairs,
                       parted + work.pairs);
      }
    }
    for (size_t head = 0; head < work.heads; ++head) {
      for (size_t token = first; token < last; ++token) {
        const size_t start = token * work.token_stride + head * work.head_stride + before;
        row.x = work.x + start;
        row.y = work.y + start;
        row.cos = static_cast<const std::byte*>(work.cos) + token * table_row;
        row.sin = static_cast<const std::byte*>(work.sin) + token * table_row;
        row.spread = reinterpret_cast<float*>(scratch) + (token - first) * spread_row;
        if constexpr (Loop::kPartsTable) {
          row.cos = reinterpret_cast<const std::byte*>(row.spread);
          row.sin = row.cos + table_row;
        }
        if (work.large) Prefetch(row.x, rotated);
        if (crosses) row.x = static_cast<const std::byte*>(std::memcpy(scratch, row.x, rotated));
        for (size_t n = 0; n < parts; ++n) {
          if (n > 0) row.x += part, row.y += part, row.cos += table_part, row.sin += table_part;
          // Shorter vectors take what whole ones leave, down to single pairs, so that nothing beyond the row is
          // touched.
          size_t pair = loop.Rotate(format, whole, row, 0);
          if (pair == row.pairs) continue;
          if constexpr (!kAny) pair = any.Rotate(format, whole, row, pair);
          if constexpr (hn::MaxLanes(whole) > 4) pair = any.Rotate(format, hn::CappedTag<Lane, 4>(), row, pair);
          if constexpr (hn::MaxLanes(whole) > 1) any.Rotate(format, hn::CappedTag<Lane, 1>(), row, pair);
        }
      }
    }
  }
}

// Whether stores may bypass the caches: whole registers at their own alignment, and nothing else.
template <class Loop>
bool CanStream(const RotatePairs& work) {
  const size_t lanes = hn::Lanes(hn::ScalableTag<float>()), alignment = lanes * sizeof(float);
  const size_t element = SizeOf(work.dtype);
  const auto aligned = [alignment](size_t bytes) { return bytes % alignment == 0; };
  return work.large && work.x != work.y && work.pairs % (work.half_split_parts * Loop::kVectorsOfPairs * lanes) == 0 &&
         aligned(reinterpret_cast<uintptr_t>(work.y)) && aligned(work.rotary_offset * element) &&
         aligned(work.token_stride) && aligned(work.head_stride);
}

template <template <Rounding, bool> class Loop, class Format>
void RotateUsual(Format format, const RotatePairs& work, size_t begin, size_t end, std::byte* scratch) {
  const bool once = work.rounding == Rounding::kOnce;
  if (CanStream<Loop<Rounding::kOnce, true>>(work)) {
    once ? RotateRows<float>(format, Loop<Rounding::kOnce, true>(), work, begin, end, scratch)
         : RotateRows<float>(format, Loop<Rounding::kEachOperation, true>(), work, begin, end, scratch);
  } else {
    once ? RotateRows<float>(format, Loop<Rounding::kOnce, false>(), work, begin, end, scratch)
         : RotateRows<float>(format, Loop<Rounding::kEachOperation, false>(), work, begin, end, scratch);
  }
}

template <class Format>
void RotateFormat(Format format, const RotatePairs& work, size_t begin, size_t end, std::byte* scratch) {
  const AnyLoop any{work.input_pairing, work.output_pairing, work.rounding};
  if (work.table_dtype == DType::kFP64) return RotateRows<double>(format, any, work, begin, end, scratch);
  if (work.table_dtype != DType::kFP32) HWY_ABORT("RotatePairs: the table is neither FP32 nor FP64");
  if (work.input_pairing == work.output_pairing) {
    if (work.input_pairing == Pairing::kHalfSplit) {
      if constexpr (kIsBFloat16<Format>) {
        if (work.heads >= kHeadsToSpread) return RotateUsual<NeighboursLoop>(format, work, begin, end, scratch);
      }
      return RotateUsual<HalvesLoop>(format, work, begin, end, scratch);
    }
    if constexpr (kIsBFloat16<Format>) return RotateUsual<LaneLoop>(format, work, begin, end, scratch);
#if HWY_TARGET != HWY_SCALAR
    if (work.heads >= kHeadsToSpread) return RotateUsual<ElementLoop>(format, work, begin, end, scratch);
#endif
  }
  RotateRows<float>(format, any, work, begin, end, scratch);
}

void RotateSlab(const RotatePairs& work, size_t begin, size_t end, std::byte* scratch) {
  switch (work.dtype) {
    case DType::kFP32: return RotateFormat(Float32(), work, begin, end, scratch);
    case DType::kFP16: return RotateFormat(Float16(), work, begin, end, scratch);
    case DType::kBF16: return RotateFormat(BFloat16Arithmetic(), work, begin, end, scratch);
    default: HWY_ABORT("RotatePairs: elements are neither FP32, FP16 nor BF16");
  }
}

void RotateAndFlush(const RotatePairs& work, size_t begin, size_t end, std::byte* scratch) {
  RotateSlab(work, begin, end, scratch);
  if (work.large) hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {

HWY_EXPORT(RotateAndFlush);

void Run(const RotatePairs& work, size_t begin, size_t end) {
  // Room for a tile of the table spread over the elements, or for the rotated elements of a head row.
  thread_local LineVector<float> scratch;
  const size_t floats = std::max(4 * work.pairs, kSpreadFloats);
  if (scratch.size() < floats) scratch.resize(floats);
  HWY_DYNAMIC_DISPATCH(RotateAndFlush)(work, begin, end, reinterpret_cast<std::byte*>(scratch.data()));
}

}  // namespace posenc
#endif  // HWY_ONCE
