// Cosines and sines of a run (rows at equally spaced positions): one product of two complex numbers per entry.
//
// Rows are computed in blocks. A block's middle lies halfway between its two central rows, half a step from each. With
// e(x) = cos x + i sin x, and k = 1/2, 3/2, ...
//
//   scale * e((middle +- k * step) * f) = [scale * e(middle * f)] * e(+-k * step * f)
//
// where the last factor is the same for all blocks. The bracketed factor is multiplied by e(kBlock * step * f) from
// block to block, in double-double: rounded to double, it is as accurate as if recomputed. The product is in double.
// docs/exact-tables.md derives the bounds; tests/kernels/sincos_bound_test.cc checks the code against them.

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
#include "posenc/kernels/sincos_angle-inl.h"
#include "posenc/kernels/sincos_fast-inl.h"
#include "posenc/kernels/sincos_rows.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;

constexpr size_t kTile = 256;  // maximum number of columns
constexpr size_t kHalf = 16;   // rows of a block on each side of its middle
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
  static constexpr bool kPowers = false;
  size_t width;      // columns, rounded up to whole vectors
  Phases middle;     // phases of the block's middle, times the scale
  Phases next;       // phases of kBlock steps: from one middle to the next
  double cos_error;  // bounds for the entries of a block
  HWY_ALIGN double sin_error[kTile];
  HWY_ALIGN double least_sin_error[kTile];
  // Cosines and sines of k * step * f, k = 1/2, 3/2, ...: kHalf rows of `width` values.
  HWY_ALIGN double cos[kHalf * kTile];
  HWY_ALIGN double sin[kHalf * kTile];
};

// product = x * y, for the vector of columns from i on. x, y and product may be the same object.
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

// Equally spaced positions, by their first two, and the columns' frequencies, padded with zeros to whole vectors.
struct RunAngles {
  double position, next_position;
  const double* inv_freq;

  double Step() const { return next_position - position; }
  double FirstMiddle() const { return position + (kHalf - 0.5) * Step(); }
};

// Sets x_hi + x_lo to the angles of the vector of columns from i on, at `position` less, unless null, those of `from`
// at from_position, and `error` to a bound of their absolute error. Returns false if an angle is out of range.
template <class D, class V>
HWY_INLINE bool RunAngle(D d, const RunAngles& to, double position, const RunAngles* from, double from_position,
                         size_t i, V& x_hi, V& x_lo, V& error) {
  const V inv_freq = hn::Load(d, to.inv_freq + i);
  hn::Mask<D> zero;
  if (from == nullptr) {
    const V f = position == 0 ? hn::Zero(d) : inv_freq;  // Split(inv_freq) may overflow
    zero = Angle<Frequencies::kExact>(d, hn::Set(d, position), f, x_hi, x_lo);
    error = hn::Zero(d);
  } else {
    zero = AngleDifference(d, hn::Set(d, position), inv_freq, hn::Set(d, from_position),
                           hn::Load(d, from->inv_freq + i), x_hi, x_lo, error);
    error = hn::IfThenZeroElse(zero, error);
  }
  return hn::AllTrue(d, hn::Or(OrdinaryAngle(d, x_hi), zero));
}

// Stores the phases of x_hi + x_lo, times `scale`, for the vector of columns from i on. `turns` is the number of
// quarter turns subtracted.
template <class D>
HWY_INLINE void ScaledPhases(D d, hn::Vec<D> x_hi, hn::Vec<D> x_lo, const DoubleDouble& scale, size_t i, Phases& phases,
                             hn::Vec<D>& turns) {
  using V = hn::Vec<D>;
  V cos, cos_lo, sin, sin_lo;
  WideSinCos(d, x_hi, x_lo, cos, cos_lo, sin, sin_lo, turns);
  const V scale_hi = hn::Set(d, scale.hi), scale_lo = hn::Set(d, scale.lo);
  cos = Multiply(d, cos, cos_lo, scale_hi, scale_lo, cos_lo);
  sin = Multiply(d, sin, sin_lo, scale_hi, scale_lo, sin_lo);
  hn::Store(FastTwoSum(cos, cos_lo, cos_lo), d, phases.cos + i);
  hn::Store(cos_lo, d, phases.cos_lo + i);
  // The sine of angle zero is +0 for any scale.
  hn::Store(hn::Add(FastTwoSum(sin, sin_lo, sin_lo), hn::Zero(d)), d, phases.sin + i);
  hn::Store(sin_lo, d, phases.sin_lo + i);
}

// Prepares `run` for the first block of a run, for `count` columns. `from` is subtracted from the angles unless null.
// Returns false if a position or an angle is out of range.
inline HWY_NOINLINE bool StartRun(const DoubleDouble& scale, const RunAngles& to, const RunAngles* from, size_t count,
                                  RunTile& run) {
  const Doubles d;
  using V = hn::Vec<Doubles>;
  const size_t lanes = hn::Lanes(d);
  const double from_middle = from != nullptr ? from->FirstMiddle() : 0;
  const double from_half_step = from != nullptr ? from->Step() / 2 : 0;
  for (const double position : {to.FirstMiddle(), to.Step() / 2, from_middle, from_half_step}) {
    if (!OrdinaryPosition(position)) return false;
  }
  run.width = hwy::RoundUpTo(count, lanes);

  Phases offset, one_step;
  V most_angle_error = hn::Zero(d);
  for (size_t i = 0; i < run.width; i += lanes) {
    V x_hi, x_lo, middle_error, step_error, middle_turns, step_turns;
    if (!RunAngle(d, to, to.FirstMiddle(), from, from_middle, i, x_hi, x_lo, middle_error)) return false;
    ScaledPhases(d, x_hi, x_lo, scale, i, run.middle, middle_turns);
    if (!RunAngle(d, to, to.Step() / 2, from, from_half_step, i, x_hi, x_lo, step_error)) return false;
    ScaledPhases(d, x_hi, x_lo, {1, 0}, i, offset, step_turns);
    const V angle_error = hn::MulAdd(step_error, hn::Set(d, kRunTurns), middle_error);
    most_angle_error = hn::Max(most_angle_error, angle_error);
    const V turns = hn::MulAdd(step_turns, hn::Set(d, kRunTurns), middle_turns);
    hn::Store(hn::MulAdd(turns, hn::Set(d, kWidePerTurn), angle_error), d, run.least_sin_error + i);
    Multiply(d, offset, offset, i, one_step);
  }
  run.cos_error = std::abs(scale.hi) * (kRunRelative + hn::GetLane(hn::MaxOfLanes(d, most_angle_error)));
  // The inner loop is over columns because each product of a column depends on the previous one.
  for (size_t k = 0; k < kHalf; ++k) {
    for (size_t i = 0; i < run.width; i += lanes) {
      if (k > 0) Multiply(d, offset, one_step, i, offset);
      hn::Store(hn::Load(d, offset.cos + i), d, run.cos + k * run.width + i);
      hn::Store(hn::Load(d, offset.sin + i), d, run.sin + k * run.width + i);
    }
  }
  for (size_t i = 0; i < run.width; i += lanes) {
    Multiply(d, offset, offset, i, run.next);  // phases of kBlock - 1 steps
    Multiply(d, run.next, one_step, i, run.next);
    V largest = hn::Zero(d);
    for (size_t k = 0; k < kHalf; ++k) largest = hn::Max(largest, hn::Abs(hn::Load(d, run.sin + k * run.width + i)));
    const V error = hn::MulAdd(largest, hn::Set(d, kRunRelative), hn::Load(d, run.least_sin_error + i));
    hn::Store(hn::Mul(hn::Set(d, std::abs(scale.hi)), error), d, run.least_sin_error + i);
  }
  return true;
}

// Sets the current block's errors; call before its rows are filled.
HWY_INLINE void SetErrors(RunTile& run) {
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

// Bounds of the two entries x * c + y * s and x * c - y * s, whose errors are at most `error`.
template <class V>
HWY_INLINE void Bounds(V x, V c, V y, V s, V error, V& sum_low, V& sum_high, V& difference_low, V& difference_high) {
  const V low = hn::MulSub(x, c, error), high = hn::MulAdd(x, c, error);
  sum_low = hn::MulAdd(y, s, low);
  sum_high = hn::MulAdd(y, s, high);
  difference_low = hn::NegMulAdd(y, s, low);
  difference_high = hn::NegMulAdd(y, s, high);
}

// Lanes of Ziv's test: floats for FP32, else doubles.
template <DType kDType>
using TestedLanes = std::conditional_t<kDType == DType::kFP32, hn::Rebind<float, Doubles>, Doubles>;
template <DType kDType>
using Doubt = hn::Vec<hn::RebindToUnsigned<TestedLanes<kDType>>>;

// Ziv's test: rounds both ends and stores one. Sets bits of `doubt` where the rounded ends differ.
template <DType kDType, bool kStream, class D, class V>
HWY_INLINE void StoreRounded(D d, V low, V high, Doubt<kDType>& doubt, uint8_t* out) {
  const hn::RebindToUnsigned<TestedLanes<kDType>> du;
  if constexpr (kDType == DType::kFP32) {
    const auto rounded = ToFloat(d, low);
    doubt = hn::Or(doubt, hn::Xor(hn::BitCast(du, rounded), hn::BitCast(du, ToFloat(d, high))));
    const hn::Rebind<float, D> df;
    if constexpr (kStream) {
      hn::Stream(rounded, df, reinterpret_cast<float*>(out));
    } else {
      hn::StoreU(rounded, df, reinterpret_cast<float*>(out));
    }
  } else {
    // The shift of the end nearer to zero is right for both: if the other end is in a higher binade, they round to the
    // same number only if that is the power of two between them.
    const V shift = RoundingShift(d, hn::Min(hn::Abs(low), hn::Abs(high)), NarrowFormatOf(kDType));
    const V rounded = RoundBy(shift, low);
    doubt = hn::Or(doubt, hn::BitCast(du, hn::Xor(rounded, RoundBy(shift, high))));
    doubt = hn::OrAnd(doubt, hn::BitCast(du, hn::Xor(low, high)), hn::BitCast(du, hn::SignBit(d)));
    StoreAs<kDType>(d, hn::CopySign(rounded, low), out);
  }
}

// Output addresses of a row of cosines and a row of sines.
struct RowOut {
  uint8_t* cos;
  uint8_t* sin;
};

// Fills the k-th rows before and after the middle, for the vector of columns from i on.
template <DType kDType, bool kStream, class Run, class D, class V>
HWY_INLINE void FillVectors(D d, const Run& run, size_t k, size_t i, V cos_error, RowOut before, RowOut after,
                            Doubt<kDType>& doubt_before, Doubt<kDType>& doubt_after) {
  V a = hn::Load(d, run.middle.cos + i), b = hn::Load(d, run.middle.sin + i);
  const V c = hn::Load(d, run.cos + k * run.width + i), s = hn::Load(d, run.sin + k * run.width + i);
  V c_before = c, s_before = s;
  if constexpr (Run::kPowers) {
    a = hn::Load(d, run.grown_cos + i);
    b = hn::Load(d, run.grown_sin + i);
    c_before = hn::Load(d, run.cos_before + k * run.width + i);
    s_before = hn::Load(d, run.sin_before + k * run.width + i);
    cos_error = hn::Load(d, run.grown_cos_error + i);
  }
  const V sin_error = hn::Load(d, run.sin_error + i);
  V before_low, before_high, after_low, after_high, unused1, unused2;
  Bounds(a, c_before, b, s_before, cos_error, before_low, before_high, unused1, unused2);
  Bounds(a, c, b, s, cos_error, unused1, unused2, after_low, after_high);
  StoreRounded<kDType, kStream>(d, before_low, before_high, doubt_before, before.cos);
  StoreRounded<kDType, kStream>(d, after_low, after_high, doubt_after, after.cos);
  Bounds(b, c_before, a, s_before, sin_error, unused1, unused2, before_low, before_high);
  Bounds(b, c, a, s, sin_error, after_low, after_high, unused1, unused2);
  StoreRounded<kDType, kStream>(d, before_low, before_high, doubt_before, before.sin);
  StoreRounded<kDType, kStream>(d, after_low, after_high, doubt_after, after.sin);
}

struct PairProven {
  bool before, after;
};

// Fills the first `count` columns of the k-th rows before and after the middle.
template <DType kDType, bool kStream, class Run>
HWY_INLINE PairProven FillRowPair(const Run& run, size_t k, size_t count, RowOut before, RowOut after) {
  const Doubles d;
  const hn::RebindToUnsigned<TestedLanes<kDType>> du;
  const size_t lanes = hn::Lanes(d);
  const auto cos_error = hn::Set(d, run.cos_error);
  auto doubt_before = hn::Zero(du), doubt_after = hn::Zero(du);
  constexpr size_t kSize = SizeOf(kDType);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const size_t at = i * kSize;
    FillVectors<kDType, kStream>(d, run, k, i, cos_error, {before.cos + at, before.sin + at},
                                 {after.cos + at, after.sin + at}, doubt_before, doubt_after);
  }
  if (i < count) {  // the last vector reaches beyond the row
    uint8_t last[4][hn::MaxLanes(Doubles()) * kSize];
    FillVectors<kDType, false>(d, run, k, i, cos_error, {last[0], last[1]}, {last[2], last[3]}, doubt_before,
                               doubt_after);
    const size_t at = i * kSize, bytes = (count - i) * kSize;
    std::memcpy(before.cos + at, last[0], bytes);
    std::memcpy(before.sin + at, last[1], bytes);
    std::memcpy(after.cos + at, last[2], bytes);
    std::memcpy(after.sin + at, last[3], bytes);
  }
  return {hn::AllTrue(du, hn::Eq(doubt_before, hn::Zero(du))), hn::AllTrue(du, hn::Eq(doubt_after, hn::Zero(du)))};
}

// Fills rows [begin, begin + rows), `count` columns from `first` on. Appends unproven rows to `unproven`.
template <DType kDType, bool kStream, class Run>
HWY_NOINLINE void FillRun(const SinCosRows& work, size_t begin, size_t rows, size_t first, size_t count, Run& run,
                          std::vector<size_t>& unproven) {
  HWY_ALIGN uint8_t beyond[2][kTile * SizeOf(kDType)];  // for the last block's rows beyond the run
  const auto out = [&](size_t row) -> RowOut {
    if (row >= rows) return {beyond[0], beyond[1]};
    const size_t offset = ((begin + row) * work.pairs + first) * SizeOf(kDType);
    return {static_cast<uint8_t*>(work.cos) + offset, static_cast<uint8_t*>(work.sin) + offset};
  };
  for (size_t block = 0; block < rows; block += kBlock) {
    if (block > 0) NextBlock(run);
    SetErrors(run);
    for (size_t k = 0; k < kHalf; ++k) {
      const size_t before = block + kHalf - 1 - k, after = block + kHalf + k;
      if (before >= rows) continue;
      const PairProven proven = FillRowPair<kDType, kStream>(run, k, count, out(before), out(after));
      if (!proven.before) unproven.push_back(begin + before);
      if (!proven.after && after < rows) unproven.push_back(begin + after);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
