// Rearranges a token's cosines and sines for the loops over a row's pairs (rotate_row-inl.h).

#include <cstddef>
#include <cstring>

#include "posenc/kernels/rotate_pairs.h"

// Per-target include guard.
#if defined(POSENC_KERNELS_ROTATE_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_ROTATE_TABLE_INL_H_
#undef POSENC_KERNELS_ROTATE_TABLE_INL_H_
#else
#define POSENC_KERNELS_ROTATE_TABLE_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rearranges a token's table row for NeighboursLoop: for every two vectors of a part, first the even entries, then the
// odd entries. Entries that do not fill two vectors keep their order.
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

#if HWY_TARGET != HWY_SCALAR
// Duplicates every lane: the lower half's lanes go to `lower`, the upper half's to `upper`.
template <class D>
HWY_INLINE void Twice(D d, hn::Vec<D> v, hn::Vec<D>& lower, hn::Vec<D>& upper) {
  const hn::RebindToSigned<D> di;
  const auto lanes = hn::ShiftRight<1>(hn::Iota(di, 0));
  const auto upper_lanes = hn::Add(lanes, hn::Set(di, static_cast<int32_t>(hn::Lanes(d) / 2)));
  lower = hn::TableLookupLanes(v, hn::IndicesFromVec(d, lanes));
  upper = hn::TableLookupLanes(v, hn::IndicesFromVec(d, upper_lanes));
}

// Expands (c, s) to (c, c) and (-s, s) for each pair of a vector, for ElementLoop.
template <class D>
HWY_INLINE void Spread(D d, hn::Vec<D> cos, hn::Vec<D> sin, hn::Vec<D>& cos_a, hn::Vec<D>& cos_b, hn::Vec<D>& sin_a,
                       hn::Vec<D>& sin_b) {
  Twice(d, cos, cos_a, cos_b);
  Twice(d, sin, sin_a, sin_b);
  sin_a = hn::OddEven(sin_a, hn::Neg(sin_a));
  sin_b = hn::OddEven(sin_b, hn::Neg(sin_b));
}
#endif

// Writes a token's row for ElementLoop: its expanded cosines, then its expanded sines (2 * pairs floats each).
HWY_INLINE void SpreadTable(const PairRotation& work, size_t token, float* spread) {
  const float* cos = static_cast<const float*>(work.cos) + token * work.pairs;
  const float* sin = static_cast<const float*>(work.sin) + token * work.pairs;
  const size_t pairs = work.pairs;
  float* spread_sin = spread + 2 * pairs;
  size_t pair = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  for (; pair + lanes <= pairs; pair += lanes) {
    hn::Vec<decltype(d)> cos_a, cos_b, sin_a, sin_b;
    Spread(d, hn::LoadU(d, cos + pair), hn::LoadU(d, sin + pair), cos_a, cos_b, sin_a, sin_b);
    hn::StoreU(cos_a, d, spread + 2 * pair);
    hn::StoreU(cos_b, d, spread + 2 * pair + lanes);
    hn::StoreU(sin_a, d, spread_sin + 2 * pair);
    hn::StoreU(sin_b, d, spread_sin + 2 * pair + lanes);
  }
#endif
  for (; pair < pairs; ++pair) {
    float c, s;  // memcpy: the table may be unaligned
    std::memcpy(&c, cos + pair, sizeof(c));
    std::memcpy(&s, sin + pair, sizeof(s));
    spread[2 * pair] = spread[2 * pair + 1] = c;
    spread_sin[2 * pair] = -s;
    spread_sin[2 * pair + 1] = s;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
