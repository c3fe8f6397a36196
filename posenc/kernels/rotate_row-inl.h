// Rotates the pairs of one head row: one loop for each common layout, and AnyLoop for all others.

#include <cstddef>

#include "posenc/kernels/rotate_pairs.h"

// Per-target include guard.
#if defined(POSENC_KERNELS_ROTATE_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_ROTATE_ROW_INL_H_
#undef POSENC_KERNELS_ROTATE_ROW_INL_H_
#else
#define POSENC_KERNELS_ROTATE_ROW_INL_H_
#endif

#include "hwy/highway.h"
#include "posenc/kernels/convert-inl.h"
#include "posenc/kernels/rotate_table-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {

// The rotated elements of one head row, and its token's row of each table.
struct Row {
  const std::byte* x;
  std::byte* y;
  size_t pairs;
  const std::byte* cos;  // NeighboursLoop::Rotate: in the order of PartNeighbours
  const std::byte* sin;
  const float* spread;  // SpreadTable's output, for ElementLoop::Rotate
  size_t ahead;         // prefetch distance from y in bytes, modulo 2^64
  size_t second = 0;    // bytes from a pair's entry to that of its second element, for AnyLoop
};

// Prefetches row.ahead bytes after bytes [offset, offset + bytes) of row.y.
HWY_INLINE void FetchAhead(const Row& row, size_t offset, size_t bytes) { Prefetch(row.y + offset, row.ahead, bytes); }

// Returns a * b, rounded if `rounding` says so. Never fused with the next addition: FMA would change the bytes.
template <class Format, class D>
HWY_INLINE hn::Vec<D> Product(Format format, D d, Rounding rounding, hn::Vec<D> a, hn::Vec<D> b) {
  const auto product = hn::Mul(a, b);
  return rounding == Rounding::kEachOperation ? RoundLanes(format, d, product) : product;
}

template <class Format, class D>
HWY_INLINE void TurnEach(Format format, D d, Rounding rounding, hn::Vec<D> c0, hn::Vec<D> s0, hn::Vec<D> c1,
                         hn::Vec<D> s1, hn::Vec<D>& x0, hn::Vec<D>& x1) {
  const auto y0 = hn::Sub(Product(format, d, rounding, x0, c0), Product(format, d, rounding, x1, s0));
  x1 = hn::Add(Product(format, d, rounding, x1, c1), Product(format, d, rounding, x0, s1));
  x0 = y0;
}
template <class Format, class D>
HWY_INLINE void Turn(Format format, D d, Rounding rounding, hn::Vec<D> c, hn::Vec<D> s, hn::Vec<D>& x0,
                     hn::Vec<D>& x1) {
  TurnEach(format, d, rounding, c, s, c, s, x0, x1);
}

// Interface of a loop: Rotate() rotates pairs from `pair` on while they fill its vectors, and returns the first pair
// left. Each step reads all its elements before it writes any, so y may be x. HoldsTable(vectors of pairs in a row) is
// true if RotateHeads can rotate all of a token's head rows with the table in registers; kByColumn, if it then takes
// one column of all heads after the other.

// Base of the loops whose RotateHeads takes rows of two or four vectors of pairs. Wider rows would be processed column
// by column, which costs more than it gains.
struct RowInRegisters {
  static constexpr bool kByColumn = false;
  static constexpr bool HoldsTable(size_t vectors) { return vectors == 2 || vectors == 4; }

  // Loads two vectors of table entries.
  template <class D>
  static HWY_INLINE void LoadTwo(D d, const std::byte* table, hn::Vec<D>& a, hn::Vec<D>& b) {
    a = LoadBytes(d, table);
    b = LoadBytes(d, table + hn::Lanes(d) * sizeof(float));
  }

  // Implements Rotate() for a loop that takes two vectors of pairs at once.
  template <class Loop, class Format, class D>
  static HWY_INLINE size_t RotateTwos(Format format, D d, const Row& row, size_t pair) {
    const size_t two = 2 * hn::Lanes(d);
    for (; pair + two <= row.pairs; pair += two) {
      hn::Vec<D> cos_a, cos_b, sin_a, sin_b;
      RowInRegisters::LoadTwo(d, row.cos + pair * sizeof(float), cos_a, cos_b);
      RowInRegisters::LoadTwo(d, row.sin + pair * sizeof(float), sin_a, sin_b);
      Loop::RotateTwo(format, d, row, pair, cos_a, sin_a, cos_b, sin_b);
    }
    return pair;
  }
};

// Loop for any pairing and rounding, chosen by branches: for rare combinations and for the ends of rows.
struct AnyLoop {
  static constexpr size_t kVectorsOfPairs = 1;
  static constexpr bool kSpreadsTable = false, kPartsTable = false;
  static constexpr bool HoldsTable(size_t) { return false; }

  Pairing input;
  Pairing output;
  Rounding rounding;

  template <class Format, class D>
  HWY_INLINE size_t Rotate(Format format, D d, const Row& row, size_t pair) const {
    constexpr size_t kElement = sizeof(typename Format::Bits);
    const size_t second_half = row.pairs * kElement;
    for (; pair + hn::Lanes(d) <= row.pairs; pair += hn::Lanes(d)) {
      hn::Vec<D> x0, x1;
      if (input == Pairing::kInterleaved) {
        LoadPairs(format, d, row.x + 2 * pair * kElement, x0, x1);
      } else {
        x0 = LoadLanes(format, d, row.x + pair * kElement);
        x1 = LoadLanes(format, d, row.x + pair * kElement + second_half);
      }
      FetchAhead(row, 2 * pair * kElement, 2 * hn::Lanes(d) * kElement);
      const size_t at = pair * sizeof(hn::TFromD<D>), second = at + row.second;
      TurnEach(format, d, rounding, LoadBytes(d, row.cos + at), LoadBytes(d, row.sin + at),
               LoadBytes(d, row.cos + second), LoadBytes(d, row.sin + second), x0, x1);
      if (output == Pairing::kInterleaved) {
        StorePairs(format, x0, x1, d, row.y + 2 * pair * kElement);
      } else {
        StoreLanes(format, x0, d, row.y + pair * kElement);
        StoreLanes(format, x1, d, row.y + pair * kElement + second_half);
      }
    }
    return pair;
  }
};

// Half-split loop: takes two vectors of each half at once, which fill one register of 16-bit elements.
template <Rounding kRounding, bool kStream>
struct HalvesLoop : RowInRegisters {
  static constexpr size_t kVectorsOfPairs = 2;
  static constexpr bool kSpreadsTable = false, kPartsTable = false;

  template <class Format, class D>
  static HWY_INLINE void RotateTwo(Format format, D d, const Row& row, size_t pair, hn::Vec<D> cos_a, hn::Vec<D> sin_a,
                                   hn::Vec<D> cos_b, hn::Vec<D> sin_b) {
    constexpr size_t kElement = sizeof(typename Format::Bits);
    const size_t lanes = hn::Lanes(d), second_half = row.pairs * kElement;
    const std::byte* x = row.x + pair * kElement;
    auto a0 = LoadLanes(format, d, x), b0 = LoadLanes(format, d, x + lanes * kElement);
    FetchAhead(row, pair * kElement, 2 * lanes * kElement);
    FetchAhead(row, pair * kElement + second_half, 2 * lanes * kElement);
    x += second_half;
    auto a1 = LoadLanes(format, d, x), b1 = LoadLanes(format, d, x + lanes * kElement);
    Turn(format, d, kRounding, cos_a, sin_a, a0, a1);
    Turn(format, d, kRounding, cos_b, sin_b, b0, b1);
    StoreTwo<kStream>(format, a0, b0, d, row.y + pair * kElement);
    StoreTwo<kStream>(format, a1, b1, d, row.y + pair * kElement + second_half);
  }

  template <class Format, class D>
  static HWY_INLINE size_t Rotate(Format format, D d, const Row& row, size_t pair) {
    return RotateTwos<HalvesLoop>(format, d, row, pair);
  }
};

// Interleaved BFloat16 loop: a pair fills one lane and needs no shuffle.
template <Rounding kRounding, bool kStream>
struct LaneLoop : RowInRegisters {
  static constexpr size_t kVectorsOfPairs = 1;
  static constexpr bool kSpreadsTable = false, kPartsTable = false;

  template <class Format, class D>
  static HWY_INLINE void RotateOne(Format format, D d, const Row& row, size_t pair, hn::Vec<D> cos, hn::Vec<D> sin) {
    constexpr size_t kElement = sizeof(typename Format::Bits);
    hn::Vec<D> x0, x1;
    LoadPairs(format, d, row.x + 2 * pair * kElement, x0, x1);
    FetchAhead(row, 2 * pair * kElement, 2 * hn::Lanes(d) * kElement);
    Turn(format, d, kRounding, cos, sin, x0, x1);
    StorePairs<kStream>(format, x0, x1, d, row.y + 2 * pair * kElement);
  }

  template <class Format, class D>
  static HWY_INLINE size_t Rotate(Format format, D d, const Row& row, size_t pair) {
    for (; pair + hn::Lanes(d) <= row.pairs; pair += hn::Lanes(d)) {
      const size_t at = pair * sizeof(float);
      RotateOne(format, d, row, pair, LoadBytes(d, row.cos + at), LoadBytes(d, row.sin + at));
    }
    return pair;
  }

  template <class Format, class D>
  static HWY_INLINE void RotateTwo(Format format, D d, const Row& row, size_t pair, hn::Vec<D> cos_a, hn::Vec<D> sin_a,
                                   hn::Vec<D> cos_b, hn::Vec<D> sin_b) {
    RotateOne(format, d, row, pair, cos_a, sin_a);
    RotateOne(format, d, row, pair + hn::Lanes(d), cos_b, sin_b);
  }
};

// Half-split BFloat16 loop: a lane holds two adjacent elements of one half. No shuffle is needed because the table's
// even and odd entries are separated too.
template <Rounding kRounding, bool kStream>
struct NeighboursLoop : RowInRegisters {
  static constexpr size_t kVectorsOfPairs = 2;
  static constexpr bool kSpreadsTable = false, kPartsTable = true;

  template <class Format, class D>
  static HWY_INLINE void RotateTwo(Format format, D d, const Row& row, size_t pair, hn::Vec<D> even_cos,
                                   hn::Vec<D> even_sin, hn::Vec<D> odd_cos, hn::Vec<D> odd_sin) {
    constexpr size_t kElement = sizeof(typename Format::Bits);
    const size_t lanes = hn::Lanes(d), second_half = row.pairs * kElement;
    hn::Vec<D> even0, odd0, even1, odd1;
    LoadPairs(format, d, row.x + pair * kElement, even0, odd0);
    LoadPairs(format, d, row.x + pair * kElement + second_half, even1, odd1);
    FetchAhead(row, pair * kElement, 2 * lanes * kElement);
    FetchAhead(row, pair * kElement + second_half, 2 * lanes * kElement);
    Turn(format, d, kRounding, even_cos, even_sin, even0, even1);
    Turn(format, d, kRounding, odd_cos, odd_sin, odd0, odd1);
    StorePairs<kStream>(format, even0, odd0, d, row.y + pair * kElement);
    StorePairs<kStream>(format, even1, odd1, d, row.y + pair * kElement + second_half);
  }

  // Requires the table in the order of PartNeighbours.
  template <class Format, class D>
  static HWY_INLINE size_t Rotate(Format format, D d, const Row& row, size_t pair) {
    return RotateTwos<NeighboursLoop>(format, d, row, pair);
  }

  // Separates even and odd entries of a table in its original order, like PartNeighbours.
  template <class D>
  static HWY_INLINE void LoadTwo(D d, const std::byte* table, hn::Vec<D>& even, hn::Vec<D>& odd) {
#if HWY_TARGET == HWY_SCALAR
    RowInRegisters::LoadTwo(d, table, even, odd);
#else
    hn::LoadInterleaved2(d, reinterpret_cast<const float*>(table), even, odd);
#endif
  }
};

#if HWY_TARGET != HWY_SCALAR  // HWY_SCALAR's vectors hold no pair
// Interleaved loop: each element times the cosine, plus the other element of its pair times plus or minus the sine.
// This takes one shuffle; deinterleaving the elements into two vectors and interleaving them again takes several.
template <Rounding kRounding, bool kStream>
struct ElementLoop {
  static constexpr size_t kVectorsOfPairs = 1;
  static constexpr bool kSpreadsTable = true, kPartsTable = false;
  // RotateHeads goes column by column; stores that bypass the caches (kStream) should go in memory order.
  static constexpr bool kByColumn = true;
  static constexpr bool HoldsTable(size_t vectors) { return !kStream && vectors % 2 == 0; }

  template <class Format, class D>
  static HWY_INLINE hn::Vec<D> Turned(Format format, D d, const Row& row, size_t element, hn::Vec<D> c, hn::Vec<D> s) {
    const auto x = LoadLanes(format, d, row.x + element * sizeof(typename Format::Bits));
    return hn::Add(Product(format, d, kRounding, x, c), Product(format, d, kRounding, hn::Reverse2(d, x), s));
  }

  // Rotates two vectors of elements.
  template <class Format, class D>
  static HWY_INLINE void RotateTwo(Format format, D d, const Row& row, size_t element, hn::Vec<D> cos_a,
                                   hn::Vec<D> sin_a, hn::Vec<D> cos_b, hn::Vec<D> sin_b) {
    constexpr size_t kElement = sizeof(typename Format::Bits);
    const auto a = Turned(format, d, row, element, cos_a, sin_a);
    const auto b = Turned(format, d, row, element + hn::Lanes(d), cos_b, sin_b);
    FetchAhead(row, element * kElement, 2 * hn::Lanes(d) * kElement);
    StoreTwo<kStream>(format, a, b, d, row.y + element * kElement);
  }

  template <class Format, class D>
  static HWY_INLINE size_t Rotate(Format format, D d, const Row& row, size_t pair) {
    const size_t lanes = hn::Lanes(d);
    for (; pair + lanes <= row.pairs; pair += lanes) {
      const float *cos = row.spread + 2 * pair, *sin = cos + 2 * row.pairs;
      RotateTwo(format, d, row, 2 * pair, hn::LoadU(d, cos), hn::LoadU(d, sin), hn::LoadU(d, cos + lanes),
                hn::LoadU(d, sin + lanes));
    }
    return pair;
  }
};

// Rotates all heads of a token column by column; a column is two vectors of pairs.
template <Rounding kRounding, class Format, class D>
HWY_INLINE void RotateHeads(ElementLoop<kRounding, false> loop, Format format, D d, const Row& row, size_t heads,
                            size_t head_bytes) {
  const size_t lanes = hn::Lanes(d), vector = lanes * sizeof(float);
  for (size_t pair = 0; pair < row.pairs; pair += 2 * lanes) {
    const std::byte *cos = row.cos + pair * sizeof(float), *sin = row.sin + pair * sizeof(float);
    hn::Vec<D> cos_a, cos_b, cos_c, cos_d, sin_a, sin_b, sin_c, sin_d;
    Spread(d, LoadBytes(d, cos), LoadBytes(d, sin), cos_a, cos_b, sin_a, sin_b);
    Spread(d, LoadBytes(d, cos + vector), LoadBytes(d, sin + vector), cos_c, cos_d, sin_c, sin_d);
    Row now = row;
    for (size_t left = heads; left > 0; --left, now.x += head_bytes, now.y += head_bytes) {
      loop.RotateTwo(format, d, now, 2 * pair, cos_a, sin_a, cos_b, sin_b);
      loop.RotateTwo(format, d, now, 2 * pair + 2 * lanes, cos_c, sin_c, cos_d, sin_d);
    }
  }
}
#endif

template <class Loop, class Format, class D>
HWY_INLINE void RotateHeads(Loop loop, Format format, D d, Row row, size_t heads, size_t head_bytes) {
  const size_t lanes = hn::Lanes(d), two = 2 * lanes * sizeof(float);
  hn::Vec<D> cos_a, cos_b, cos_c, cos_d, sin_a, sin_b, sin_c, sin_d;
  loop.LoadTwo(d, row.cos, cos_a, cos_b);
  loop.LoadTwo(d, row.sin, sin_a, sin_b);
  if (row.pairs == 2 * lanes) {
    for (; heads > 0; --heads, row.x += head_bytes, row.y += head_bytes) {
      loop.RotateTwo(format, d, row, 0, cos_a, sin_a, cos_b, sin_b);
    }
    return;
  }
  loop.LoadTwo(d, row.cos + two, cos_c, cos_d);
  loop.LoadTwo(d, row.sin + two, sin_c, sin_d);
  for (; heads > 0; --heads, row.x += head_bytes, row.y += head_bytes) {
    loop.RotateTwo(format, d, row, 0, cos_a, sin_a, cos_b, sin_b);
    loop.RotateTwo(format, d, row, 2 * lanes, cos_c, sin_c, cos_d, sin_d);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
