// Rotating the pairs of one head row: a loop for each of the usual layouts, and one for all the others.

#include <cstddef>
#include <cstring>

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

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {

// The rotated elements of one head row, and its token's row of each table.
struct Row {
  const std::byte* x;
  std::byte* y;
  size_t pairs;
  const std::byte* cos;  // for NeighboursLoop what PartNeighbours makes of them
  const std::byte* sin;
  const float* spread;  // what SpreadTable makes of them, for ElementLoop
  size_t ahead;         // how far after y lies what is to be fetched, modulo 2^64
};

// At bytes [offset, offset + bytes) of a row: begins to fetch what is used later.
HWY_INLINE void FetchAhead(const Row& row, size_t offset, size_t bytes) { Prefetch(row.y + offset, row.ahead, bytes); }

// Not fused with what follows: that would change the bytes.
template <class Format, class D>
HWY_INLINE hn::Vec<D> Product(Format format, D d, Rounding rounding, hn::Vec<D> a, hn::Vec<D> b) {
  const auto product = hn::Mul(a, b);
  return rounding == Rounding::kEachOperation ? RoundLanes(format, d, product) : product;
}

template <class Format, class D>
HWY_INLINE void Turn(Format format, D d, Rounding rounding, const Row& row, size_t pair, hn::Vec<D>& x0,
                     hn::Vec<D>& x1) {
  const auto c = LoadBytes(d, row.cos + pair * sizeof(hn::TFromD<D>));
  const auto s = LoadBytes(d, row.sin + pair * sizeof(hn::TFromD<D>));
  const auto y0 = hn::Sub(Product(format, d, rounding, x0, c), Product(format, d, rounding, x1, s));
  x1 = hn::Add(Product(format, d, rounding, x1, c), Product(format, d, rounding, x0, s));
  x0 = y0;
}

// A loop rotates pairs from `pair` on while they fill what it takes at once, and returns the first pair left. All of
// that is read before any is written, so that y may be x.

// Any choice, as branches: for the rare ones, and for what the other loops leave of a row.
struct AnyLoop {
  static constexpr size_t kVectorsOfPairs = 1;
  static constexpr bool kSpreadsTable = false, kPartsTable = false;

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
      Turn(format, d, rounding, row, pair, x0, x1);
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

// Half-split: two vectors of each half at once, which fill one register of 16-bit elements.
template <Rounding kRounding, bool kStream>
struct HalvesLoop {
  static constexpr size_t kVectorsOfPairs = 2;
  static constexpr bool kSpreadsTable = false, kPartsTable = false;

  template <class Format, class D>
  static HWY_INLINE size_t Rotate(Format format, D d, const Row& row, size_t pair) {
    constexpr size_t kElement = sizeof(typename Format::Bits);
    const size_t lanes = hn::Lanes(d), second_half = row.pairs * kElement;
    for (; pair + 2 * lanes <= row.pairs; pair += 2 * lanes) {
      const std::byte* x = row.x + pair * kElement;
      auto a0 = LoadLanes(format, d, x), b0 = LoadLanes(format, d, x + lanes * kElement);
      FetchAhead(row, pair * kElement, 2 * lanes * kElement);
      FetchAhead(row, pair * kElement + second_half, 2 * lanes * kElement);
      x += second_half;
      auto a1 = LoadLanes(format, d, x), b1 = LoadLanes(format, d, x + lanes * kElement);
      Turn(format, d, kRounding, row, pair, a0, a1);
      Turn(format, d, kRounding, row, pair + lanes, b0, b1);
      StoreTwo<kStream>(format, a0, b0, d, row.y + pair * kElement);
      StoreTwo<kStream>(format, a1, b1, d, row.y + pair * kElement + second_half);
    }
    return pair;
  }
};

// Interleaved BFloat16: a pair fills one lane, and needs no shuffle.
template <Rounding kRounding, bool kStream>
struct LaneLoop {
  static constexpr size_t kVectorsOfPairs = 1;
  static constexpr bool kSpreadsTable = false, kPartsTable = false;

  template <class Format, class D>
  static HWY_INLINE size_t Rotate(Format format, D d, const Row& row, size_t pair) {
    constexpr size_t kElement = sizeof(typename Format::Bits);
    for (; pair + hn::Lanes(d) <= row.pairs; pair += hn::Lanes(d)) {
      hn::Vec<D> x0, x1;
      LoadPairs(format, d, row.x + 2 * pair * kElement, x0, x1);
      FetchAhead(row, 2 * pair * kElement, 2 * hn::Lanes(d) * kElement);
      Turn(format, d, kRounding, row, pair, x0, x1);
      StorePairs<kStream>(format, x0, x1, d, row.y + 2 * pair * kElement);
    }
    return pair;
  }
};

// Half-split BFloat16: lanes hold two neighbours of one half, and need no shuffle where the table's neighbours are
// parted as well.
template <Rounding kRounding, bool kStream>
struct NeighboursLoop {
  static constexpr size_t kVectorsOfPairs = 2;
  static constexpr bool kSpreadsTable = false, kPartsTable = true;

  template <class Format, class D>
  static HWY_INLINE size_t Rotate(Format format, D d, const Row& row, size_t pair) {
    constexpr size_t kElement = sizeof(typename Format::Bits);
    const size_t lanes = hn::Lanes(d), second_half = row.pairs * kElement;
    for (; pair + 2 * lanes <= row.pairs; pair += 2 * lanes) {
      hn::Vec<D> even0, odd0, even1, odd1;
      LoadPairs(format, d, row.x + pair * kElement, even0, odd0);
      LoadPairs(format, d, row.x + pair * kElement + second_half, even1, odd1);
      FetchAhead(row, pair * kElement, 2 * lanes * kElement);
      FetchAhead(row, pair * kElement + second_half, 2 * lanes * kElement);
      Turn(format, d, kRounding, row, pair, even0, even1);
      Turn(format, d, kRounding, row, pair + lanes, odd0, odd1);
      StorePairs<kStream>(format, even0, odd0, d, row.y + pair * kElement);
      StorePairs<kStream>(format, even1, odd1, d, row.y + pair * kElement + second_half);
    }
    return pair;
  }
};

// For NeighboursLoop, a token's row of a table: of each two vectors of a part first the even entries, then the odd
// ones. What does not fill two vectors stays as it is.
HWY_INLINE void PartNeighbours(const float* table, size_t parts, size_t pairs, float* parted) {
  const size_t part = pairs / parts;
  for (size_t n = 0; n < parts; ++n, table += part, parted += part) {
    size_t pair = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::ScalableTag<float> d;
    const size_t lanes = hn::Lanes(d);
    for (; pair + 2 * lanes <= part; pair += 2 * lanes) {
      hn::Vec<decltype(d)> even, odd;
      hn::LoadInterleaved2(d, table + pair, even, odd);
      hn::StoreU(even, d, parted + pair);
      hn::StoreU(odd, d, parted + pair + lanes);
    }
#endif
    std::memcpy(parted + pair, table + pair, (part - pair) * sizeof(float));
  }
}

// For ElementLoop, a token's row: each cosine twice, and behind them each sine twice, first negated.
HWY_INLINE void SpreadTable(const RotatePairs& work, size_t token, float* spread) {
  const float* cos = static_cast<const float*>(work.cos) + token * work.pairs;
  const float* sin = static_cast<const float*>(work.sin) + token * work.pairs;
  const size_t pairs = work.pairs;
  float* spread_sin = spread + 2 * pairs;
  size_t pair = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  for (; pair + hn::Lanes(d) <= pairs; pair += hn::Lanes(d)) {
    const auto c = hn::LoadU(d, cos + pair), s = hn::LoadU(d, sin + pair);
    hn::StoreInterleaved2(c, c, d, spread + 2 * pair);
    hn::StoreInterleaved2(hn::Neg(s), s, d, spread_sin + 2 * pair);
  }
#endif
  for (; pair < pairs; ++pair) {
    float c, s;  // which need not be aligned in the table
    std::memcpy(&c, cos + pair, sizeof(c));
    std::memcpy(&s, sin + pair, sizeof(s));
    spread[2 * pair] = spread[2 * pair + 1] = c;
    spread_sin[2 * pair] = -s;
    spread_sin[2 * pair + 1] = s;
  }
}

#if HWY_TARGET != HWY_SCALAR  // whose vectors hold no pair
// Interleaved: every element x times the cosine, plus the other element of its pair times plus or minus the sine. It
// takes one shuffle where parting elements into two vectors and joining them takes several.
template <Rounding kRounding, bool kStream>
struct ElementLoop {
  static constexpr size_t kVectorsOfPairs = 1;
  static constexpr bool kSpreadsTable = true, kPartsTable = false;

  template <class Format, class D>
  static HWY_INLINE hn::Vec<D> Turned(Format format, D d, const Row& row, size_t element) {
    const auto x = LoadLanes(format, d, row.x + element * sizeof(typename Format::Bits));
    const auto c = hn::LoadU(d, row.spread + element), s = hn::LoadU(d, row.spread + 2 * row.pairs + element);
    return hn::Add(Product(format, d, kRounding, x, c), Product(format, d, kRounding, hn::Reverse2(d, x), s));
  }

  template <class Format, class D>
  static HWY_INLINE size_t Rotate(Format format, D d, const Row& row, size_t pair) {
    for (; pair + hn::Lanes(d) <= row.pairs; pair += hn::Lanes(d)) {
      constexpr size_t kElement = sizeof(typename Format::Bits);
      const auto a = Turned(format, d, row, 2 * pair), b = Turned(format, d, row, 2 * pair + hn::Lanes(d));
      FetchAhead(row, 2 * pair * kElement, 2 * hn::Lanes(d) * kElement);
      StoreTwo<kStream>(format, a, b, d, row.y + 2 * pair * kElement);
    }
    return pair;
  }
};
#endif

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
