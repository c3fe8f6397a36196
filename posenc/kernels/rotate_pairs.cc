#include "posenc/kernels/rotate_pairs.h"

#include <cstring>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/rotate_pairs.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "posenc/kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {

// The rotated elements of one head row, its token's row of each table, and what to do with them.
struct Row {
  const std::byte* x;
  std::byte* y;
  const std::byte* cos;
  const std::byte* sin;
  size_t pairs;
  Pairing input_pairing;
  Pairing output_pairing;
  Rounding rounding;
};

// Not fused with what follows: that would change the bytes.
template <class Format, class D>
HWY_INLINE hn::Vec<D> Product(Format format, D d, Rounding rounding, hn::Vec<D> a, hn::Vec<D> b) {
  const auto product = hn::Mul(a, b);
  return rounding == Rounding::kEachOperation ? RoundLanes(format, d, product) : product;
}

// Rotates pairs from `begin` on while they fill a vector of D; returns the first pair left. Arithmetic is in the type
// of the table, D's lanes. All of a vector's pairs are read before one is written, so that y may be x if both pairings
// are the same. The row's choices are branches in the loop: they cost nothing measurable, and a loop for each
// combination on each target would be hundreds.
template <class Format, class D>
HWY_INLINE size_t RotateWhole(D d, const Row& row, size_t begin) {
  constexpr size_t kElement = sizeof(typename Format::Bits);
  constexpr size_t kTableElement = sizeof(hn::TFromD<D>);
  const Format format;
  const size_t second_half = row.pairs * kElement;
  size_t pair = begin;
  for (; pair + hn::Lanes(d) <= row.pairs; pair += hn::Lanes(d)) {
    hn::Vec<D> x0, x1;
    if (row.input_pairing == Pairing::kInterleaved) {
      LoadPairs(format, d, row.x + 2 * pair * kElement, x0, x1);
    } else {
      x0 = LoadLanes(format, d, row.x + pair * kElement);
      x1 = LoadLanes(format, d, row.x + pair * kElement + second_half);
    }
    const auto c = LoadBytes(d, row.cos + pair * kTableElement);
    const auto s = LoadBytes(d, row.sin + pair * kTableElement);
    const auto y0 = hn::Sub(Product(format, d, row.rounding, x0, c), Product(format, d, row.rounding, x1, s));
    const auto y1 = hn::Add(Product(format, d, row.rounding, x1, c), Product(format, d, row.rounding, x0, s));
    if (row.output_pairing == Pairing::kInterleaved) {
      StorePairs(format, y0, y1, d, row.y + 2 * pair * kElement);
    } else {
      StoreLanes(format, y0, d, row.y + pair * kElement);
      StoreLanes(format, y1, d, row.y + pair * kElement + second_half);
    }
  }
  return pair;
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
    std::memcpy(work.y + row, work.x + row, before);
    std::memcpy(work.y + row + until, work.x + row + until, after);
  }
}

template <class Format, class Lane>
void RotateRows(const RotatePairs& work, size_t begin, size_t end, std::byte* scratch) {
  const size_t before = work.rotary_offset * sizeof(typename Format::Bits);
  const size_t rotated = 2 * work.pairs * sizeof(typename Format::Bits);
  const size_t table_row = work.pairs * sizeof(Lane);
  Row row;
  row.pairs = work.pairs;
  row.input_pairing = work.input_pairing;
  row.output_pairing = work.output_pairing;
  row.rounding = work.rounding;
  for (size_t token = begin; token < end; ++token) {
    CopyUnrotated(work, token);
    row.cos = static_cast<const std::byte*>(work.cos) + token * table_row;
    row.sin = static_cast<const std::byte*>(work.sin) + token * table_row;
    for (size_t head = 0; head < work.heads; ++head) {
      const size_t start = token * work.token_stride + head * work.head_stride + before;
      row.x = work.x + start;
      row.y = work.y + start;
      if (scratch != nullptr) row.x = static_cast<const std::byte*>(std::memcpy(scratch, row.x, rotated));
      // Shorter vectors take what whole ones leave, down to single pairs, so that nothing beyond the row is touched.
      const hn::ScalableTag<Lane> whole;
      const hn::CappedTag<Lane, 4> four;
      const hn::CappedTag<Lane, 1> one;
      size_t pair = RotateWhole<Format>(whole, row, 0);
      if constexpr (hn::MaxLanes(whole) > 4) pair = RotateWhole<Format>(four, row, pair);
      if constexpr (hn::MaxLanes(whole) > 1) RotateWhole<Format>(one, row, pair);
    }
  }
}

template <class Format>
void RotateFormat(const RotatePairs& work, size_t begin, size_t end, std::byte* scratch) {
  if (work.table_dtype == DType::kFP32) {
    RotateRows<Format, float>(work, begin, end, scratch);
  } else if (work.table_dtype == DType::kFP64) {
    RotateRows<Format, double>(work, begin, end, scratch);
  } else {
    HWY_ABORT("RotatePairs: the table is neither FP32 nor FP64");
  }
}

// scratch: null, or room for the rotated elements of one head row, which are then read from there.
void RotateSlab(const RotatePairs& work, size_t begin, size_t end, std::byte* scratch) {
  switch (work.dtype) {
    case DType::kFP32: return RotateFormat<Float32>(work, begin, end, scratch);
    case DType::kFP16: return RotateFormat<Float16>(work, begin, end, scratch);
    case DType::kBF16: return RotateFormat<BFloat16>(work, begin, end, scratch);
    default: HWY_ABORT("RotatePairs: elements are neither FP32, FP16 nor BF16");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {

HWY_EXPORT(RotateSlab);

void Run(const RotatePairs& work, size_t begin, size_t end) {
  std::byte* scratch = nullptr;
  if (work.x == work.y && work.input_pairing != work.output_pairing) {
    // A pair's results land on elements of other pairs, so each head row is read whole before it is written.
    thread_local std::vector<std::byte> widest_row;
    const size_t rotated = 2 * work.pairs * SizeOf(work.dtype);
    if (widest_row.size() < rotated) widest_row.resize(rotated);
    scratch = widest_row.data();
  }
  HWY_DYNAMIC_DISPATCH(RotateSlab)(work, begin, end, scratch);
}

}  // namespace posenc
#endif  // HWY_ONCE
