#include "posenc/kernels/rotate_pairs.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "posenc/base/caches.h"
#include "posenc/base/line_allocator.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/rotate_pairs.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "posenc/kernels/rotate_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {

// Copies bytes. If `large` and both y and bytes are multiples of a register, the stores bypass the caches.
HWY_INLINE void CopyElements(const std::byte* x, std::byte* y, size_t bytes, bool large) {
  const hn::ScalableTag<uint8_t> d;
  const size_t lanes = hn::Lanes(d);
  if (!large || bytes % lanes != 0 || reinterpret_cast<uintptr_t>(y) % lanes != 0) {
    std::memcpy(y, x, bytes);
    return;
  }
  for (size_t i = 0; i < bytes; i += lanes) {
    Prefetch(x + i, kFarAhead, lanes);
    StoreRegister<true>(LoadBytes(d, x + i), d, y + i);
  }
}

// The elements of a head row that are not rotated: copied if x and y differ.
struct Rest {
  bool large;
  size_t before, rotated, after;  // bytes

  HWY_NOINLINE void Copy(const std::byte* x, std::byte* y) const {
    CopyElements(x - before, y - before, before, large);
    CopyElements(x + rotated, y + rotated, after, large);
  }
};

// Minimum heads for rearranging the table: rearranging one row costs about as much as it saves on two head rows.
constexpr size_t kHeadsToSpread = 4;

// Strides from one head row to the next, over a token's heads or over a head's tokens.
struct Step {
  size_t count, bytes;
  size_t table_bytes, spread_floats;  // strides in the tables: 0 between heads

  void Take(Row& row) const {
    row.x += bytes;
    row.y += bytes;
    row.cos += table_bytes;
    row.sin += table_bytes;
    row.spread += spread_floats;
  }
};

struct Tile {
  Row row;  // first row
  Step outer, inner;
  // With this many inner rows left, the prefetch address jumps to the next outer row or to the next tile.
  size_t rows_ahead, jump, last_jump;
  std::byte* crossing;  // null, or a copy of the row that is being overwritten
  bool copies;          // true: copies `rest`
  Rest rest;
};

// Takes the tile by value: byte stores may alias a referenced tile and force reloads, which is slow for short rows.
template <bool kWhole, class Lane, class Format, class Loop>
HWY_NOINLINE void RotateTile(Format format, Loop loop, AnyLoop any, Tile tile) {
  const hn::ScalableTag<Lane> whole;
  for (; tile.outer.count > 0; --tile.outer.count, tile.outer.Take(tile.row)) {
    Row row = tile.row;
    for (size_t left = tile.inner.count; left > 0; --left, tile.inner.Take(row)) {
      if (left == tile.rows_ahead) row.ahead += tile.outer.count > 1 ? tile.jump : tile.last_jump;
      if (tile.copies) tile.rest.Copy(row.x, row.y);
      Row now = row;
      if constexpr (std::is_same_v<Loop, AnyLoop>) {
        const size_t bytes = 2 * row.pairs * sizeof(typename Format::Bits);
        if (tile.crossing != nullptr) now.x = static_cast<const std::byte*>(std::memcpy(tile.crossing, row.x, bytes));
      }
      // Shorter vectors rotate the remaining pairs, down to single pairs, so that no access goes beyond the row.
      size_t pair = loop.Rotate(format, whole, now, 0);
      if (kWhole || pair == row.pairs) continue;
      if constexpr (!std::is_same_v<Loop, AnyLoop>) pair = any.Rotate(format, whole, now, pair);
      if constexpr (hn::MaxLanes(whole) > 4) pair = any.Rotate(format, hn::CappedTag<Lane, 4>(), now, pair);
      if constexpr (hn::MaxLanes(whole) > 1) any.Rotate(format, hn::CappedTag<Lane, 1>(), now, pair);
    }
  }
}

// True if a column of ElementLoop has at most two cache lines, one in 16-bit types, as with AVX2. AVX-512's has twice
// as many.
constexpr bool kNarrowColumns = hn::MaxLanes(hn::ScalableTag<float>()) <= 8;

// Prefetch distance in bytes. In the caches the lines of y are prefetched: stores need them in L1, and rows are too
// short for the processor to fetch them in time. Beyond the caches x is prefetched, as reading is the bottleneck.
size_t Ahead(const PairRotation& work, bool by_column) {
  const bool needless = FetchesByItself();
  if (!work.large) return needless && !by_column ? 0 : 1024;
  // Measured on a Zen 4 and, with AVX2, on a Zen 3; float16 interleaved with AVX2 on a Zen 4. Not measured: SSE4.
  const bool far = kNarrowColumns && work.dtype == DType::kFP16 && work.input_pairing == Pairing::kInterleaved;
  // Prefetches of two halves this wide from farther ahead disturb the processor's own: half the speed, on a Zen 4.
  const bool wide_halves = work.dtype == DType::kFP32 && work.input_pairing == Pairing::kHalfSplit &&
                           work.pairs >= 128 * work.half_split_parts;
  if (needless && wide_halves) return 256;
  if (!needless || work.x != work.y || far) return kFarAhead;
  return kNarrowColumns ? 1024 : 256;
}
size_t AheadOfWritten(const PairRotation& work, bool by_column) {
  return Ahead(work, by_column) +
         (work.large ? reinterpret_cast<uintptr_t>(work.x) - reinterpret_cast<uintptr_t>(work.y) : 0);
}

template <class Lane, class Format, class Loop>
void RotateRows(Format format, Loop loop, const PairRotation& work, size_t begin, size_t end, std::byte* scratch) {
  const AnyLoop any{work.input_pairing, work.output_pairing, work.rounding};
  const size_t table_row = work.entries_of_token() * sizeof(Lane), spread_row = 4 * work.pairs;
  const size_t parts = Loop::kSpreadsTable ? 1 : work.half_split_parts, pairs = work.pairs / parts;
  const bool whole = pairs % (Loop::kVectorsOfPairs * hn::Lanes(hn::ScalableTag<Lane>())) == 0;
  const auto rotate_tile = whole ? RotateTile<true, Lane, Format, Loop> : RotateTile<false, Lane, Format, Loop>;
  // Tiles of tokens are processed in memory order, and a tile's tables stay in the L1 cache. With several parts each
  // tile is traversed once per part. The inner loop should have many rows: with one head these are its tokens.
  const bool heads_first = work.heads == 1 || work.head_stride > work.token_stride;
  const size_t tokens_at_once = parts > 1 && !heads_first ? 1 : std::max<size_t>(kTableFloats / spread_row, 1);
  const Step heads{work.heads, work.head_stride, work.head_entries * sizeof(Lane), 0};
  Step tokens{0, work.token_stride, Loop::kPartsTable ? spread_row * sizeof(float) : table_row, spread_row};
  Tile tile;
  tile.row.pairs = pairs;
  tile.row.second = work.second_entry * sizeof(Lane);
  const size_t ahead = Ahead(work, false);
  tile.row.ahead = AheadOfWritten(work, false);
  // In place with different pairings, results overwrite other pairs' elements: the head row is copied first.
  tile.crossing = work.x == work.y && work.input_pairing != work.output_pairing ? scratch : nullptr;
  const size_t element = sizeof(typename Format::Bits), rotated = 2 * work.pairs;
  tile.rest = {work.large, work.rotary_offset * element, rotated * element,
               (work.head_dim - work.rotary_offset - rotated) * element};
  for (size_t first = begin; first < end; first += tokens.count) {
    tokens.count = std::min(tokens_at_once, end - first);
    for (size_t n = 0; n < tokens.count; ++n) {
      const size_t token = first + n;
      float* const spread = reinterpret_cast<float*>(scratch) + n * spread_row;
      if constexpr (Loop::kSpreadsTable) SpreadTable(work, token, spread);
      if constexpr (Loop::kPartsTable) {
        PartNeighbours(static_cast<const float*>(work.cos) + token * work.pairs, parts, work.pairs, spread);
        PartNeighbours(static_cast<const float*>(work.sin) + token * work.pairs, parts, work.pairs,
                       spread + work.pairs);
      }
    }
    tile.outer = heads_first ? heads : tokens;
    tile.inner = heads_first ? tokens : heads;
    tile.rows_ahead = std::min(ahead / std::max<size_t>(tile.inner.bytes, 1), tile.inner.count);
    tile.jump = tile.outer.bytes - tile.inner.count * tile.inner.bytes;
    tile.last_jump = heads_first ? -(heads.count - 1) * heads.bytes : 0;
    for (size_t part = 0; part < parts; ++part) {
      const size_t start = first * work.token_stride + (work.rotary_offset + 2 * part * pairs) * element;
      tile.row.x = work.x + start;
      tile.row.y = work.y + start;
      tile.row.cos = Loop::kPartsTable ? scratch : static_cast<const std::byte*>(work.cos) + first * table_row;
      tile.row.sin =
          Loop::kPartsTable ? scratch + table_row : static_cast<const std::byte*>(work.sin) + first * table_row;
      tile.row.cos += part * pairs * sizeof(Lane);
      tile.row.sin += part * pairs * sizeof(Lane);
      tile.row.spread = reinterpret_cast<const float*>(scratch);
      tile.copies = part == 0 && work.x != work.y && work.head_dim > 2 * work.pairs;
      rotate_tile(format, loop, any, tile);
    }
  }
}

// Returns whether a loop that could go by column should go in memory order, because a column's steps are too large:
// float32: beyond the caches. float16 with narrow columns, on AMD: beyond the caches and, out of place, if these tokens
// do not fit the L2 cache (measured on a Zen 4 with AVX2).
bool NeedsMemoryOrder(const PairRotation& work) {
  if (work.dtype == DType::kFP32) return work.large;
  const size_t bytes = work.tokens * work.heads * work.head_dim * SizeOf(work.dtype);
  return kNarrowColumns && FetchesByItself() && (work.large || (work.x != work.y && ExceedsCore(2 * bytes)));
}

// Returns whether RotateTokens applies: enough heads, adjacent in memory, in whole registers, no elements to copy.
template <class Loop>
bool HoldsTable(const PairRotation& work) {
  if (Loop::kByColumn && NeedsMemoryOrder(work)) return false;
  const size_t lanes = hn::Lanes(hn::ScalableTag<float>()), pairs = work.pairs / work.half_split_parts;
  return work.heads >= kHeadsToSpread && work.head_stride < work.token_stride && pairs % lanes == 0 &&
         Loop::HoldsTable(pairs / lanes) && (work.x == work.y || work.head_dim == 2 * work.pairs);
}

// Rotates token by token. A token's table stays in registers while its heads are rotated.
template <class Format, class Loop>
HWY_NOINLINE void RotateTokens(Format format, Loop loop, const PairRotation& work, size_t begin, size_t end) {
  const hn::ScalableTag<float> d;
  const size_t parts = work.half_split_parts, pairs = work.pairs / parts, element = sizeof(typename Format::Bits);
  Row row{.pairs = pairs, .ahead = AheadOfWritten(work, Loop::kByColumn)};
  for (size_t token = begin; token < end; ++token) {
    for (size_t part = 0; part < parts; ++part) {
      const size_t start = token * work.token_stride + (work.rotary_offset + 2 * part * pairs) * element;
      const size_t entry = (token * work.pairs + part * pairs) * sizeof(float);
      row.x = work.x + start;
      row.y = work.y + start;
      row.cos = static_cast<const std::byte*>(work.cos) + entry;
      row.sin = static_cast<const std::byte*>(work.sin) + entry;
      RotateHeads(loop, format, d, row, work.heads, work.head_stride);
    }
  }
}

template <class Format, class Loop>
void RotateWith(Format format, Loop loop, const PairRotation& work, size_t begin, size_t end, std::byte* scratch) {
  if constexpr (Loop::HoldsTable(4)) {
    if (HoldsTable<Loop>(work)) return RotateTokens(format, loop, work, begin, end);
  }
  RotateRows<float>(format, loop, work, begin, end, scratch);
}

// Returns whether stores may bypass the caches: every store must be a whole, aligned register.
template <class Loop>
bool CanStream(const PairRotation& work) {
  const size_t lanes = hn::Lanes(hn::ScalableTag<float>()), alignment = lanes * sizeof(float);
  const size_t element = SizeOf(work.dtype);
  const auto aligned = [alignment](size_t bytes) { return bytes % alignment == 0; };
  return work.large && work.x != work.y && work.pairs % (work.half_split_parts * Loop::kVectorsOfPairs * lanes) == 0 &&
         aligned(reinterpret_cast<uintptr_t>(work.y)) && aligned(work.rotary_offset * element) &&
         aligned(work.token_stride) && aligned(work.head_stride);
}

template <template <Rounding, bool> class Loop, class Format>
void RotateUsual(Format format, const PairRotation& work, size_t begin, size_t end, std::byte* scratch) {
  const bool once = work.rounding == Rounding::kOnce;
  if (CanStream<Loop<Rounding::kOnce, true>>(work)) {
    once ? RotateWith(format, Loop<Rounding::kOnce, true>(), work, begin, end, scratch)
         : RotateWith(format, Loop<Rounding::kEachOperation, true>(), work, begin, end, scratch);
  } else {
    once ? RotateWith(format, Loop<Rounding::kOnce, false>(), work, begin, end, scratch)
         : RotateWith(format, Loop<Rounding::kEachOperation, false>(), work, begin, end, scratch);
  }
}

template <class Format>
void RotateFormat(Format format, const PairRotation& work, size_t begin, size_t end, std::byte* scratch) {
  const AnyLoop any{work.input_pairing, work.output_pairing, work.rounding};
  if (work.table_dtype == DType::kFP64) return RotateRows<double>(format, any, work, begin, end, scratch);
  if (work.table_dtype != DType::kFP32) HWY_ABORT("PairRotation: the table is neither FP32 nor FP64");
  const bool one_table = work.head_entries == 0 && work.second_entry == 0;
  if (work.input_pairing == work.output_pairing && one_table) {
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

void RotateSlab(const PairRotation& work, size_t begin, size_t end, std::byte* scratch) {
  switch (work.dtype) {
    case DType::kFP32: return RotateFormat(Float32(), work, begin, end, scratch);
    case DType::kFP16: return RotateFormat(Float16(), work, begin, end, scratch);
    case DType::kBF16: return RotateFormat(BFloat16Arithmetic(), work, begin, end, scratch);
    default: HWY_ABORT("PairRotation: elements are neither FP32, FP16 nor BF16");
  }
}

void RotateAndFlush(const PairRotation& work, size_t begin, size_t end, std::byte* scratch) {
  RotateSlab(work, begin, end, scratch);
  if (work.large) hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {

HWY_EXPORT(RotateAndFlush);

void Advance(PairRotation& work, size_t tokens, size_t heads) {
  const size_t bytes = (tokens * work.entries_of_token() + heads * work.head_entries) * SizeOf(work.table_dtype);
  work.cos = static_cast<const std::byte*>(work.cos) + bytes;
  work.sin = static_cast<const std::byte*>(work.sin) + bytes;
}

void RotatePairs(const PairRotation& work, size_t begin, size_t end) {
  // Holds the rearranged table rows of a tile, or the rotated elements of a head row.
  thread_local LineVector<float> scratch;
  const size_t floats = std::max(4 * work.pairs, kTableFloats);
  if (scratch.size() < floats) scratch.resize(floats);
  HWY_DYNAMIC_DISPATCH(RotateAndFlush)(work, begin, end, reinterpret_cast<std::byte*>(scratch.data()));
}

}  // namespace posenc
#endif  // HWY_ONCE
