// A run (sincos_run-inl.h) whose columns grow: its entries are multiplied by e^(exponent * log_base), where exponents
// are equally spaced as well. With x_m at a block's middle and x_k a step's part of it,
//
//   e^(x_m +- x_k) * scale * e(middle +- k * step) = [e^x_m * scale * e(middle)] * [e^(+-x_k) * e(+-k * step)]
//
// so the rows before and after the middle have factors of their own. docs/exact-tables.md derives the bounds;
// tests/kernels/sincos_bound_test.cc checks the code against them.

#if defined(POSENC_KERNELS_SINCOS_POWERS_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_SINCOS_POWERS_RUN_INL_H_
#undef POSENC_KERNELS_SINCOS_POWERS_RUN_INL_H_
#else
#define POSENC_KERNELS_SINCOS_POWERS_RUN_INL_H_
#endif

#include <hwy/highway.h>

#include "posenc/kernels/exp-inl.h"
#include "posenc/kernels/sincos_powers.h"
#include "posenc/kernels/sincos_run-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// `cos` and `sin` of RunTile are those of the rows after the middle, times their powers.
struct PowersRun : RunTile {
  static constexpr bool kPowers = true;
  double position, block_step;  // of the block's middle; from one middle to the next
  double centre, scale_base;    // exponent = (position - centre) / scale_base
  HWY_ALIGN double log_base[kTile];
  HWY_ALIGN double grown_cos[kTile];  // the block's middle, times its power
  HWY_ALIGN double grown_sin[kTile];
  HWY_ALIGN double grown_cos_error[kTile];  // instead of cos_error
  HWY_ALIGN double cos_before[kHalf * kTile];
  HWY_ALIGN double sin_before[kHalf * kTile];
};

// Like StartRun. log_base is padded as the frequencies are; `work` gives the exponents.
inline HWY_NOINLINE bool StartPowersRun(const SinCosPowers& work, const DoubleDouble& scale, const RunAngles& angles,
                                        const double* log_base, size_t count, PowersRun& run) {
  const Doubles d;
  using V = hn::Vec<Doubles>;
  if (!StartRun(scale, angles, nullptr, count, run)) return false;
  const double step = angles.Step();
  run.position = angles.FirstMiddle();
  run.block_step = kBlock * step;
  run.centre = work.centre;
  run.scale_base = work.scale_base;
  const V half_step = hn::Set(d, step / 2 / work.scale_base);
  const V most = hn::Set(d, kMostBlockGrowth / (kBlock - 1));
  for (size_t i = 0; i < run.width; i += hn::Lanes(d)) {
    const V log = hn::Load(d, log_base + i);
    hn::Store(log, d, run.log_base + i);
    const V half = hn::Mul(half_step, log);
    if (!hn::AllTrue(d, hn::Le(hn::Abs(half), most))) return false;
    for (size_t k = 0; k < kHalf; ++k) {
      const V x = hn::Mul(half, hn::Set(d, static_cast<double>(2 * k + 1)));
      const V after = Exp<true>(d, x), before = Exp<true>(d, hn::Neg(x));
      const size_t at = k * run.width + i;
      const V c = hn::Load(d, run.cos + at), s = hn::Load(d, run.sin + at);
      hn::Store(hn::Mul(c, before), d, run.cos_before + at);
      hn::Store(hn::Mul(s, before), d, run.sin_before + at);
      hn::Store(hn::Mul(c, after), d, run.cos + at);
      hn::Store(hn::Mul(s, after), d, run.sin + at);
    }
  }
  return true;
}

// Where the middle's power is out of range, the errors are infinite.
HWY_INLINE void SetErrors(PowersRun& run) {
  const Doubles d;
  using V = hn::Vec<Doubles>;
  SetErrors(static_cast<RunTile&>(run));
  const V exponent = hn::Set(d, (run.position - run.centre) / run.scale_base);
  for (size_t i = 0; i < run.width; i += hn::Lanes(d)) {
    const V x = hn::Mul(exponent, hn::Load(d, run.log_base + i)), size = hn::Abs(x);
    const auto in_range = hn::Le(size, hn::Set(d, kMostMiddleGrowth));
    const V power = Exp<true>(d, hn::IfThenElseZero(in_range, x));
    hn::Store(hn::Mul(hn::Load(d, run.middle.cos + i), power), d, run.grown_cos + i);
    hn::Store(hn::Mul(hn::Load(d, run.middle.sin + i), power), d, run.grown_sin + i);
    const V more = hn::Mul(power, hn::MulAdd(size, hn::Set(d, 2.0), hn::Set(d, 9.0)));
    const auto grown = [&](V error) HWY_ATTR { return hn::IfThenElse(in_range, hn::Mul(error, more), hn::Inf(d)); };
    hn::Store(grown(hn::Set(d, run.cos_error)), d, run.grown_cos_error + i);
    hn::Store(grown(hn::Load(d, run.sin_error + i)), d, run.sin_error + i);
  }
}

HWY_INLINE void NextBlock(PowersRun& run) {
  NextBlock(static_cast<RunTile&>(run));
  run.position += run.block_step;
}

// Keeps the loop out of FillRun: GCC 12 crashes on it there for SVE.
template <DType kDType, bool kStream>
HWY_NOINLINE PairProven FillRowPair(const PowersRun& run, size_t k, size_t count, RowOut before, RowOut after) {
  return FillRowPair<kDType, kStream, PowersRun>(run, k, count, before, after);
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
