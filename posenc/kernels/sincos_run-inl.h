// Cosines and sines of a run, rows at equally spaced positions: a product of two complex numbers an entry.
//
// The rows are taken in blocks. A block's middle lies between its rows: the angles of those nearest to it are half a
// step smaller and half a step larger than its own. With e(x) = cos x + i sin x, and k = 1/2, 3/2, ...
//
//   scale * e((middle +- k * step) * f) = [scale * e(middle * f)] * e(+-k * step * f)
//
// where the last factors are the same for all blocks. From block to block the one in brackets is multiplied by another
// such number, in double-double, so that rounded to double it is as good as computed anew; the product is in double.
// docs/exact-tables.md derives the bounds, tests/unit/sincos_bound_test.cc holds the code against them.

#if defined(POSENC_KERNELS_SINCOS_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_SINCOS_RUN_INL_H_
#undef POSENC_KERNELS_SINCOS_RUN_INL_H_
#else
#define POSENC_KERNELS_SINCOS_RUN_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "posenc/kernels/narrow_format-inl.h"
#include "posenc/kernels/position_runs.h"
#include "posenc/kernels/sincos_fast-inl.h"
#include "posenc/kernels/sincos_rows.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;

constexpr size_t kTile = 256;  // columns, at most
constexpr size_t kHalf = 16;   // rows of a block on each side of its middle, a power of two
constexpr size_t kBlock = 2 * kHalf;
static_assert(kTile % hn::MaxLanes(Doubles()) == 0);
static_assert(kBlock <= kShortestRun);  // the middle of the first block is a double

// cos x + i sin x for each column's x, in double-double.
struct Phases {
  HWY_ALIGN double cos[kTile];
  HWY_ALIGN double cos_lo[kTile];
  HWY_ALIGN double sin[kTile];
  HWY_ALIGN double sin_lo[kTile];
};

struct RunTile {
  size_t width;      // columns, in whole vectors
  Phases middle;     // times the scale
  Phases next;       // of a whole block's step: from one middle to the next
  double cos_error;  // bounds for the entries of a block
  HWY_ALIGN double sin_error[kTile];
  HWY_ALIGN double least_sin_error[kTile];
  // Of k * step * f: kHalf rows of `width` values.
  HWY_ALIGN double cos[kHalf * kTile];
  HWY_ALIGN double sin[kHalf * kTile];
};

// Whether no product with a number of ordinary size can overflow or underflow.
inline bool OrdinaryPosition(double position) {
  const double size = std::abs(position);
  return size == 0 || (size >= 0x1p-800 && size <= 0x1p900);
}
template <class D, class V>
HWY_INLINE hn::Mask<D> OrdinaryAngle(D d, V x) {
  const V size = hn::Abs(x);
  return hn::And(hn::Ge(size, hn::Set(d, kFastMin)), hn::Le(size, hn::Set(d, kFastMax)));
}

// product = x * y, which may be the same, in the columns from i on.
template <class D>
HWY_INLINE void Multiply(D d, const Phases& x, const Phases& y, size_t i, Phases& product) {
  using V = hn::Vec<D>;
  const V a = hn::Load(d, x.cos + i), b = hn::Load(d, x.sin + i);
  const V c = hn::Load(d, y.cos + i), s = hn::Load(d, y.sin + i);
  const V a_lo = hn::Load(d, x.cos_lo + i), b_lo = hn::Load(d, x.sin_lo + i);
  const V c_lo = hn::Load(d, y.cos_lo + i), s_lo = hn::Load(d, y.sin_lo + i);
  V ac_lo, bs_lo, as_lo, bc_lo, error;
  const V ac = Multiply(d, a, a_lo, c, c_lo, ac_lo);
  const V bs = Multiply(d, b, b_lo, s, s_lo, bs_lo);
  const V as = Multiply(d, a, a_lo, s, s_lo, as_lo);
  const V bc = Multiply(d, b, b_lo, c, c_lo, bc_lo);
  const V cos = TwoSum(ac, hn::Neg(bs), error);
  hn::Store(FastTwoSum(cos, hn::Add(error, hn::Sub(ac_lo, bs_lo)), error), d, product.cos + i);
  hn::Store(error, d, product.cos_lo + i);
  const V sin = TwoSum(bc, as, error);
  hn::Store(FastTwoSum(sin, hn::Add(error, hn::Add(bc_lo, as_lo)), error), d, product.sin + i);
  hn::Store(error, d, product.sin_lo + i);
}

// Cosines and sines of position * inv_freq in the columns from i on, with the turns taken off; false if an angle is out
// of range.
template <class D>
HWY_INLINE bool PhasesOf(D d, double position, hn::Vec<D> inv_freq, size_t i, Phases& phases, hn::Vec<D>& turns) {
  using V = hn::Vec<D>;
  V x_lo, cos, cos_lo, sin, sin_lo;
  const V x = TwoProduct(d, hn::Set(d, position), inv_freq, x_lo);
  WideSinCos(d, x, x_lo, cos, cos_lo, sin, sin_lo, turns);
  hn::Store(FastTwoSum(cos, cos_lo, cos_lo), d, phases.cos + i);
  hn::Store(cos_lo, d, phases.cos_lo + i);
  hn::Store(FastTwoSum(sin, sin_lo, sin_lo), d, phases.sin + i);
  hn::Store(sin_lo, d, phases.sin_lo + i);
  return position == 0 || hn::AllTrue(d, hn::Or(OrdinaryAngle(d, x), hn::Eq(inv_freq, hn::Zero(d))));
}

// The first block of a run whose first two positions these are, for `count` frequencies, padded with zeros to whole
// vectors. False if an angle is out of range.
inline HWY_NOINLINE bool StartRun(const DoubleDouble& scale, double position, double next_position, const double* inv_freq,
                           size_t count, RunTile& run) {
  const Doubles d;
  using V = hn::Vec<Doubles>;
  const double step = next_position - position;
  const double middle = position + (kHalf - 0.5) * step;
  if (!OrdinaryPosition(middle) || !OrdinaryPosition(step / 2)) return false;
  run.width = hwy::RoundUpTo(count, hn::Lanes(d));
  run.cos_error = std::abs(scale.hi) * kRunRelative;
  const V scale_hi = hn::Set(d, scale.hi), scale_lo = hn::Set(d, scale.lo);
  Phases offset, one_step;
  for (size_t i = 0; i < run.width; i += hn::Lanes(d)) {
    const V f = hn::Load(d, inv_freq + i);
    V middle_turns, step_turns, lo;
    if (!PhasesOf(d, middle, f, i, run.middle, middle_turns) || !PhasesOf(d, step / 2, f, i, offset, step_turns)) {
      return false;
    }
    const V cos =
        Multiply(d, hn::Load(d, run.middle.cos + i), hn::Load(d, run.middle.cos_lo + i), scale_hi, scale_lo, lo);
    hn::Store(FastTwoSum(cos, lo, lo), d, run.middle.cos + i);
    hn::Store(lo, d, run.middle.cos_lo + i);
    const V sin =
        Multiply(d, hn::Load(d, run.middle.sin + i), hn::Load(d, run.middle.sin_lo + i), scale_hi, scale_lo, lo);
    // The sine of angle zero is +0, times whatever scale.
    hn::Store(hn::Add(FastTwoSum(sin, lo, lo), hn::Zero(d)), d, run.middle.sin + i);
    hn::Store(lo, d, run.middle.sin_lo + i);

    Multiply(d, offset, offset, i, one_step);
    V largest = hn::Zero(d);
    for (size_t k = 0; k < kHalf; ++k) {
      const V sine = hn::Load(d, offset.sin + i);
      largest = hn::Max(largest, hn::Abs(sine));
      hn::Store(hn::Load(d, offset.cos + i), d, run.cos + k * run.width + i);
      hn::Store(sine, d, run.sin + k * run.width + i);
      Multiply(d, offset, one_step, i, offset);
    }
    Multiply(d, one_step, one_step, i, run.next);
    for (size_t steps = 2; steps < kBlock; steps *= 2) Multiply(d, run.next, run.next, i, run.next);

    const V turns = hn::MulAdd(step_turns, hn::Set(d, kRunTurns), middle_turns);
    const V error = hn::MulAdd(turns, hn::Set(d, kWidePerTurn), hn::Mul(largest, hn::Set(d, kRunRelative)));
    hn::Store(hn::Mul(hn::Abs(scale_hi), error), d, run.least_sin_error + i);
  }
  return true;
}

// Before the rows of a block.
HWY_INLINE void SetSinErrors(RunTile& run) {
  const Doubles d;
  for (size_t i = 0; i < run.width; i += hn::Lanes(d)) {
    const auto size = hn::Abs(hn::Load(d, run.middle.sin + i));
    hn::Store(hn::MulAdd(size, hn::Set(d, kRunRelative), hn::Load(d, run.least_sin_error + i)), d, run.sin_error + i);
  }
}

HWY_INLINE void NextBlock(RunTile& run) {
  const Doubles d;
  for (size_t i = 0; i < run.width; i += hn::Lanes(d)) Multiply(d, run.middle, run.next, i, run.middle);
}

// Numbers below and above the entries of the k-th row before or after the middle, in the columns from i on.
template <bool kAfter, class D, class V>
HWY_INLINE void Bounds(D d, const RunTile& run, size_t k, size_t i, V cos_error, V& cos_low, V& cos_high, V& sin_low,
                       V& sin_high) {
  const V a = hn::Load(d, run.middle.cos + i), b = hn::Load(d, run.middle.sin + i);
  const V c = hn::Load(d, run.cos + k * run.width + i), s = hn::Load(d, run.sin + k * run.width + i);
  const V sin_error = hn::Load(d, run.sin_error + i);
  // What the two rows share comes first.
  const V ac_low = hn::MulSub(a, c, cos_error), ac_high = hn::MulAdd(a, c, cos_error);
  const V bc_low = hn::MulSub(b, c, sin_error), bc_high = hn::MulAdd(b, c, sin_error);
  cos_low = kAfter ? hn::NegMulAdd(b, s, ac_low) : hn::MulAdd(b, s, ac_low);
  cos_high = kAfter ? hn::NegMulAdd(b, s, ac_high) : hn::MulAdd(b, s, ac_high);
  sin_low = kAfter ? hn::MulAdd(a, s, bc_low) : hn::NegMulAdd(a, s, bc_low);
  sin_high = kAfter ? hn::MulAdd(a, s, bc_high) : hn::NegMulAdd(a, s, bc_high);
}

// The lanes in which Ziv's test is made: floats where that is the format, else doubles.
template <DType kDType>
using TestedLanes = std::conditional_t<kDType == DType::kFP32, hn::Rebind<float, Doubles>, Doubles>;
template <DType kDType>
using Doubt = hn::Vec<hn::RebindToUnsigned<TestedLanes<kDType>>>;

// Ziv's test: both ends are rounded, and one is stored. Where they are not the same number, `doubt` gets bits.
template <DType kDType, class D, class V>
HWY_INLINE void StoreRounded(D d, V low, V high, Doubt<kDType>& doubt, uint8_t* out) {
  const hn::RebindToUnsigned<TestedLanes<kDType>> du;
  if constexpr (kDType == DType::kFP32) {
    const auto rounded = ToFloat(d, low);
    doubt = hn::Or(doubt, hn::Xor(hn::BitCast(du, rounded), hn::BitCast(du, ToFloat(d, high))));
    hn::StoreU(rounded, hn::Rebind<float, D>(), reinterpret_cast<float*>(out));
  } else {
    // The shift of the end nearer to zero serves both: where the other is in a higher binade, they round to the same
    // number only if that is the power of two between them.
    const V shift = RoundingShift(d, hn::Min(hn::Abs(low), hn::Abs(high)), NarrowFormatOf(kDType));
    const V rounded = RoundBy(shift, low);
    doubt = hn::Or(doubt, hn::BitCast(du, hn::Xor(rounded, RoundBy(shift, high))));
    doubt = hn::OrAnd(doubt, hn::BitCast(du, hn::Xor(low, high)), hn::BitCast(du, hn::SignBit(d)));
    StoreAs<kDType>(d, hn::CopySign(rounded, low), out);
  }
}

// Where a row of cosines and one of sines go.
struct RowOut {
  uint8_t* cos;
  uint8_t* sin;
};

struct PairProven {
  bool before, after;
};

// The first `count` columns of the k-th rows before and after the middle.
template <DType kDType>
HWY_INLINE PairProven FillRowPair(const RunTile& run, size_t k, size_t count, RowOut before, RowOut after) {
  const Doubles d;
  using V = hn::Vec<Doubles>;
  const hn::RebindToUnsigned<TestedLanes<kDType>> du;
  const size_t lanes = hn::Lanes(d);
  const V cos_error = hn::Set(d, run.cos_error);
  auto doubt_before = hn::Zero(du), doubt_after = hn::Zero(du);
  const auto fill = [&](size_t i, RowOut to_before, RowOut to_after) HWY_ATTR {
    V cos_low, cos_high, sin_low, sin_high;
    Bounds<false>(d, run, k, i, cos_error, cos_low, cos_high, sin_low, sin_high);
    V cos_low2, cos_high2, sin_low2, sin_high2;
    Bounds<true>(d, run, k, i, cos_error, cos_low2, cos_high2, sin_low2, sin_high2);
    StoreRounded<kDType>(d, cos_low, cos_high, doubt_before, to_before.cos);
    StoreRounded<kDType>(d, sin_low, sin_high, doubt_before, to_before.sin);
    StoreRounded<kDType>(d, cos_low2, cos_high2, doubt_after, to_after.cos);
    StoreRounded<kDType>(d, sin_low2, sin_high2, doubt_after, to_after.sin);
  };
  constexpr size_t kSize = SizeOf(kDType);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const size_t at = i * kSize;
    fill(i, {before.cos + at, before.sin + at}, {after.cos + at, after.sin + at});
  }
  if (i < count) {  // the rest of the last vector is beyond the row
    uint8_t last[4][hn::MaxLanes(Doubles()) * kSize];
    fill(i, {last[0], last[1]}, {last[2], last[3]});
    const size_t at = i * kSize, bytes = (count - i) * kSize;
    std::memcpy(before.cos + at, last[0], bytes);
    std::memcpy(before.sin + at, last[1], bytes);
    std::memcpy(after.cos + at, last[2], bytes);
    std::memcpy(after.sin + at, last[3], bytes);
  }
  return {hn::AllTrue(du, hn::Eq(doubt_before, hn::Zero(du))), hn::AllTrue(du, hn::Eq(doubt_after, hn::Zero(du)))};
}

// Rows [begin, begin + rows) of `count` columns from `first` on; appends the rows that are not proven.
template <DType kDType>
HWY_NOINLINE void FillRun(const SinCosRows& work, size_t begin, size_t rows, size_t first, size_t count, RunTile& run,
                          std::vector<size_t>& unproven) {
  uint8_t beyond[2][kTile * SizeOf(kDType)];  // for the rows of the last block that are not of the run
  const auto out = [&](size_t row) -> RowOut {
    if (row >= rows) return {beyond[0], beyond[1]};
    const size_t offset = ((begin + row) * work.pairs + first) * SizeOf(kDType);
    return {static_cast<uint8_t*>(work.cos) + offset, static_cast<uint8_t*>(work.sin) + offset};
  };
  for (size_t block = 0; block < rows; block += kBlock) {
    if (block > 0) NextBlock(run);
    SetSinErrors(run);
    for (size_t k = 0; k < kHalf; ++k) {
      const size_t before = block + kHalf - 1 - k, after = block + kHalf + k;
      if (before >= rows) continue;
      const PairProven proven = FillRowPair<kDType>(run, k, count, out(before), out(after));
      if (!proven.before) unproven.push_back(begin + before);
      if (!proven.after && after < rows) unproven.push_back(begin + after);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
