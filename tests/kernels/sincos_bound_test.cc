// The error bounds of sincos_fast-inl.h, sincos_run-inl.h and sincos_powers_run-inl.h, on every target, against MPFR.

#include <gtest/gtest.h>
#include <mpfr.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <random>
#include <utility>
#include <vector>

#include "posenc/exact/real.h"

#ifndef POSENC_TESTS_KERNELS_SPACED
#define POSENC_TESTS_KERNELS_SPACED
namespace posenc {
// Equally spaced positions and frequencies.
struct Spaced {
  double position, step;
  const double* inv_freq;
};
}  // namespace posenc
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/kernels/sincos_bound_test.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "posenc/kernels/sincos_fast-inl.h"
#include "posenc/kernels/sincos_powers_run-inl.h"
#include "posenc/kernels/sincos_run-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// For each angle x_hi + x_lo: the narrow cosine and sine, then the wide ones as hi, lo, hi, lo, then |n|.
constexpr size_t kOutputs = 7;

void Evaluate(const double* x_hi, const double* x_lo, size_t count, double* out) {
  const hn::CappedTag<double, 8> d;
  using V = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN double values[kOutputs][8];
  for (size_t i = 0; i + lanes <= count; i += lanes) {
    V cos, sin, cos_hi, cos_lo, sin_hi, sin_lo, turns;
    NarrowSinCos(d, hn::LoadU(d, x_hi + i), hn::LoadU(d, x_lo + i), cos, sin, turns);
    WideSinCos(d, hn::LoadU(d, x_hi + i), hn::LoadU(d, x_lo + i), cos_hi, cos_lo, sin_hi, sin_lo, turns);
    hn::Store(cos, d, values[0]);
    hn::Store(sin, d, values[1]);
    hn::Store(cos_hi, d, values[2]);
    hn::Store(cos_lo, d, values[3]);
    hn::Store(sin_hi, d, values[4]);
    hn::Store(sin_lo, d, values[5]);
    hn::Store(turns, d, values[6]);
    for (size_t lane = 0; lane < lanes; ++lane) {
      for (size_t k = 0; k < kOutputs; ++k) out[(i + lane) * kOutputs + k] = values[k][lane];
    }
  }
}

// Outputs per row and frequency of a block: numbers below and above the cosine and their distance to it, then the same
// for the sine.
constexpr size_t kRunOutputs = 6;
constexpr size_t kUnused = 9;

// Evaluates the k-th rows before and after the middle, for the vector of columns from i on.
template <class Run>
HWY_NOINLINE void EvaluateVectors(const Run& run, size_t k, size_t i, size_t count, double* out) {
  const Doubles d;
  using V = hn::Vec<Doubles>;
  HWY_ALIGN double values[9][hn::MaxLanes(Doubles())];
  const auto load = [&](const double* from) HWY_ATTR { return hn::Load(d, from + i); };
  const size_t row_k = k * run.width;
  V a = load(run.middle.cos), b = load(run.middle.sin), cos_error = hn::Set(d, run.cos_error);
  const V c = load(run.cos + row_k), s = load(run.sin + row_k);
  V c_before = c, s_before = s;
  if constexpr (Run::kPowers) {
    a = load(run.grown_cos);
    b = load(run.grown_sin);
    c_before = load(run.cos_before + row_k);
    s_before = load(run.sin_before + row_k);
    cos_error = load(run.grown_cos_error);
  }
  const auto store = [&](V x, V cos, V y, V sin, V error, size_t sum, size_t difference) HWY_ATTR {
    V sum_low, sum_high, difference_low, difference_high;
    Bounds(x, cos, y, sin, error, sum_low, sum_high, difference_low, difference_high);
    if (sum != kUnused) hn::Store(sum_low, d, values[sum]);
    if (sum != kUnused) hn::Store(sum_high, d, values[sum + 1]);
    if (difference != kUnused) hn::Store(difference_low, d, values[difference]);
    if (difference != kUnused) hn::Store(difference_high, d, values[difference + 1]);
  };
  store(a, c_before, b, s_before, cos_error, 0, kUnused);
  store(a, c, b, s, cos_error, kUnused, 4);
  store(b, c_before, a, s_before, load(run.sin_error), kUnused, 2);
  store(b, c, a, s, load(run.sin_error), 6, kUnused);
  hn::Store(cos_error, d, values[8]);
  for (size_t lane = 0; lane < std::min(hn::Lanes(d), count - i); ++lane) {
    for (const bool after : {false, true}) {
      const size_t row = after ? kHalf + k : kHalf - 1 - k;
      double* to = out + (row * count + i + lane) * kRunOutputs;
      const size_t from = after ? 4 : 0;
      to[0] = values[from][lane];
      to[1] = values[from + 1][lane];
      to[2] = values[8][lane];
      to[3] = values[from + 2][lane];
      to[4] = values[from + 3][lane];
      to[5] = run.sin_error[i + lane];
    }
  }
}

template <class Run>
void EvaluateBlock(Run& run, size_t block, size_t count, double* out) {
  for (size_t i = 0; i < block; ++i) NextBlock(run);
  SetErrors(run);
  for (size_t k = 0; k < kHalf; ++k) {
    for (size_t i = 0; i < count; i += hn::Lanes(Doubles())) EvaluateVectors(run, k, i, count, out);
  }
}

bool EvaluateRun(const DoubleDouble& scale, const Spaced& to, const Spaced* from, size_t block, size_t count,
                 double* out) {
  static RunTile run;
  const auto angles = [](const Spaced& spaced) -> RunAngles {
    return {spaced.position, spaced.position + spaced.step, spaced.inv_freq};
  };
  const RunAngles from_angles = from != nullptr ? angles(*from) : RunAngles();
  if (!StartRun(scale, angles(to), from != nullptr ? &from_angles : nullptr, count, run)) return false;
  EvaluateBlock(run, block, count, out);
  return true;
}

bool EvaluatePowersRun(const DoubleDouble& scale, double position, double step, size_t block, const double* inv_freq,
                       const double* log_base, double centre, double scale_base, size_t count, double* out) {
  static PowersRun run;
  const SinCosPowers work{.rows = {}, .log_base = log_base, .centre = centre, .scale_base = scale_base};
  if (!StartPowersRun(work, scale, {position, position + step, inv_freq}, log_base, count, run)) return false;
  EvaluateBlock(run, block, count, out);
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {
namespace {

HWY_EXPORT(Evaluate);
HWY_EXPORT(EvaluateRun);
HWY_EXPORT(EvaluatePowersRun);
constexpr size_t kOutputs = HWY_NAMESPACE::kOutputs;
constexpr size_t kRunOutputs = HWY_NAMESPACE::kRunOutputs;
constexpr size_t kBlock = HWY_NAMESPACE::kBlock;

constexpr uint64_t kSeed = 20240518;

// Reference cosines and sines as unevaluated sums of two doubles: 2^-106 is far below the bounds.
struct Angles {
  std::vector<double> hi, lo;
  std::vector<double> cos_hi, cos_lo, sin_hi, sin_lo;
};

void SplitInTwo(mpfr_ptr value, std::vector<double>& hi, std::vector<double>& lo) {
  hi.push_back(mpfr_get_d(value, MPFR_RNDN));
  mpfr_sub_d(value, value, hi.back(), MPFR_RNDN);
  lo.push_back(mpfr_get_d(value, MPFR_RNDN));
}

void Add(Angles& angles, mpfr_srcptr exact_angle) {
  mpfr_t angle, cos, sin;
  mpfr_inits2(300, angle, cos, sin, static_cast<mpfr_ptr>(nullptr));
  mpfr_set(angle, exact_angle, MPFR_RNDN);
  SplitInTwo(angle, angles.hi, angles.lo);
  mpfr_set_d(angle, angles.hi.back(), MPFR_RNDN);
  mpfr_add_d(angle, angle, angles.lo.back(), MPFR_RNDN);
  mpfr_sin_cos(sin, cos, angle, MPFR_RNDN);
  SplitInTwo(cos, angles.cos_hi, angles.cos_lo);
  SplitInTwo(sin, angles.sin_hi, angles.sin_lo);
  mpfr_clears(angle, cos, sin, static_cast<mpfr_ptr>(nullptr));
}

// Angles of all sizes; of the first turn; and as near to multiples of pi/4 as two doubles allow, where the reduction
// cancels most and the polynomials reach the ends of their interval.
Angles SampleAngles(size_t of_each_kind) {
  std::mt19937_64 random(kSeed);
  Angles angles;
  mpfr_t angle;
  mpfr_init2(angle, 300);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (size_t i = 0; i < of_each_kind; ++i) {
    const double any_size = std::exp2(between(i % 8 == 0 ? -499 : -60, 44));
    mpfr_set_d(angle, any_size, MPFR_RNDN);
    mpfr_add_d(angle, angle, any_size * between(-0x1p-53, 0x1p-53), MPFR_RNDN);
    Add(angles, angle);
    mpfr_set_d(angle, between(-6.3, 6.3), MPFR_RNDN);
    Add(angles, angle);
    mpfr_const_pi(angle, MPFR_RNDN);
    mpfr_mul_d(angle, angle, std::floor(std::exp2(between(0, 44.3))), MPFR_RNDN);
    mpfr_div_ui(angle, angle, 4, MPFR_RNDN);
    if (i % 2 == 0) mpfr_mul_d(angle, angle, 1 + between(-0x1p-50, 0x1p-50), MPFR_RNDN);
    Add(angles, angle);
  }
  mpfr_clear(angle);
  return angles;
}

// The error as a share of its bound.
double WorstShare(const Angles& angles, size_t i, double value_hi, double value_lo, bool cosine, double bound) {
  const double want_hi = cosine ? angles.cos_hi[i] : angles.sin_hi[i];
  const double want_lo = cosine ? angles.cos_lo[i] : angles.sin_lo[i];
  return std::abs((value_hi - want_hi) + (value_lo - want_lo)) / bound;
}

TEST(SinCosBound, HoldsOnEveryTarget) {
  const Angles angles = SampleAngles(60000);
  const size_t count = angles.hi.size();
  std::vector<double> out(count * kOutputs);
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    HWY_DYNAMIC_DISPATCH(Evaluate)(angles.hi.data(), angles.lo.data(), count, out.data());
    double narrow = 0, wide = 0;
    for (size_t i = 0; i < count; ++i) {
      const double* value = out.data() + i * kOutputs;
      for (const bool cosine : {true, false}) {
        const double want = std::abs(cosine ? angles.cos_hi[i] : angles.sin_hi[i]);
        const double narrow_bound = want * kNarrowRelative + value[6] * kNarrowPerTurn;
        const double wide_bound = want * kWideRelative + value[6] * kWidePerTurn;
        const size_t at = cosine ? 2 : 4;
        narrow = std::max(narrow, WorstShare(angles, i, value[cosine ? 0 : 1], 0, cosine, narrow_bound));
        wide = std::max(wide, WorstShare(angles, i, value[at], value[at + 1], cosine, wide_bound));
      }
    }
    hwy::SetSupportedTargetsForTest(0);
    std::cout << hwy::TargetName(target) << ": errors up to " << narrow << " of the narrow bound, " << wide
              << " of the wide one\n";
    // The scaling and Ziv's test use up to a quarter of the bounds (docs/exact-tables.md).
    EXPECT_LT(narrow, 0.75) << "seed " << kSeed;
    EXPECT_LT(wide, 0.75) << "seed " << kSeed;
  }
}

// One block of a run, and its exact entries as unevaluated sums of two doubles.
struct RunBlock {
  DoubleDouble scale;
  double position, step;
  size_t block;
  std::vector<double> inv_freq;
  std::vector<double> cos_hi, cos_lo, sin_hi, sin_lo;
  // With powers:
  std::vector<double> base = {}, log_base = {};
  double centre = 0, scale_base = 1;
  // Of differences:
  double from_position = 0, from_step = 0;
  std::vector<double> from_inv_freq = {};
};

void AddEntries(RunBlock& run) {
  mpfr_t angle, from, power, scale, cos, sin;
  mpfr_inits2(300, angle, from, power, scale, cos, sin, static_cast<mpfr_ptr>(nullptr));
  mpfr_set_d(scale, run.scale.hi, MPFR_RNDN);
  mpfr_add_d(scale, scale, run.scale.lo, MPFR_RNDN);
  for (size_t row = 0; row < kBlock; ++row) {
    for (size_t i = 0; i < run.inv_freq.size(); ++i) {
      mpfr_set_d(angle, run.step, MPFR_RNDN);
      mpfr_mul_ui(angle, angle, run.block * kBlock + row, MPFR_RNDN);
      mpfr_add_d(angle, angle, run.position, MPFR_RNDN);
      mpfr_sub_d(power, angle, run.centre, MPFR_RNDN);
      mpfr_div_d(power, power, run.scale_base, MPFR_RNDN);
      mpfr_mul_d(angle, angle, run.inv_freq[i], MPFR_RNDN);
      if (!run.from_inv_freq.empty()) {
        mpfr_set_d(from, run.from_step, MPFR_RNDN);
        mpfr_mul_ui(from, from, run.block * kBlock + row, MPFR_RNDN);
        mpfr_add_d(from, from, run.from_position, MPFR_RNDN);
        mpfr_mul_d(from, from, run.from_inv_freq[i], MPFR_RNDN);
        mpfr_sub(angle, angle, from, MPFR_RNDN);
      }
      mpfr_sin_cos(sin, cos, angle, MPFR_RNDN);
      if (!run.base.empty()) {
        mpfr_set_d(angle, run.base[i], MPFR_RNDN);
        mpfr_pow(power, angle, power, MPFR_RNDN);
        mpfr_mul(cos, cos, power, MPFR_RNDN);
        mpfr_mul(sin, sin, power, MPFR_RNDN);
      }
      mpfr_mul(cos, cos, scale, MPFR_RNDN);
      mpfr_mul(sin, sin, scale, MPFR_RNDN);
      SplitInTwo(cos, run.cos_hi, run.cos_lo);
      SplitInTwo(sin, run.sin_hi, run.sin_lo);
    }
  }
  mpfr_clears(angle, from, power, scale, cos, sin, static_cast<mpfr_ptr>(nullptr));
}

// First and last blocks; positions far from zero, through zero, by fractions and by large steps; frequencies of all
// sizes and multiples of a quarter turn, whose sines or cosines are small.
std::vector<RunBlock> SampleRuns() {
  std::mt19937_64 random(kSeed);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const auto blocks = kLongestRun / kBlock;
  const double last = static_cast<double>(blocks) - 1;
  std::vector<RunBlock> runs;
  for (const DoubleDouble& scale : {DoubleDouble{1, 0}, DoubleDouble{-1.0 / 3, -0x1p-54 / 3}}) {
    for (const auto& [position, step] : std::vector<std::pair<double, double>>{{0, 1},
                                                                               {-131000, 1},
                                                                               {0x1p20, 1},
                                                                               {0x1p31, 1},
                                                                               {-0x1p40, -1},
                                                                               {7, 0x1p-10},
                                                                               {-last * kBlock, 1},
                                                                               {-1e6, 1024}}) {
      for (const double block : {0.0, 1.0, last}) {
        RunBlock run{scale, position, step, static_cast<size_t>(block), {}, {}, {}, {}, {}};
        for (int i = 0; i < 24; ++i) run.inv_freq.push_back(std::exp2(between(i % 8 == 0 ? -300 : -50, 2)));
        for (int turns = 1; turns < 8; ++turns) run.inv_freq.push_back(turns * 0x1.921fb54442d18p+0);
        run.inv_freq.push_back(0);
        AddEntries(run);
        runs.push_back(run);
      }
    }
  }
  return runs;
}

// Runs with powers keep their bound, too. The exponents go up to the limits for a block's middle and for its rows.
std::vector<RunBlock> WithPowers(std::vector<RunBlock> runs) {
  std::mt19937_64 random(kSeed + 1);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (RunBlock& run : runs) {
    for (auto* old : {&run.cos_hi, &run.cos_lo, &run.sin_hi, &run.sin_lo}) old->clear();
    for (size_t i = 0; i < run.inv_freq.size(); ++i) run.base.push_back(between(2.0 / 7, 1));
    for (const double base : run.base) run.log_base.push_back(RoundedLog<double>(base));
    run.scale_base = run.step * std::exp2(between(5.3, 14)) * (random() % 2 == 0 ? -1 : 1);
    const double here = run.position + run.step * static_cast<double>(run.block * kBlock);
    run.centre = here + run.scale_base * between(-1, 1) * (random() % 3 == 0 ? 78 : 4);
    AddEntries(run);
  }
  return runs;
}

// Differences of the runs' angles and others: equal in some columns, nearly equal in others, and smaller and larger
// ones.
std::vector<RunBlock> WithDifferences(std::vector<RunBlock> runs) {
  std::mt19937_64 random(kSeed + 2);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  for (RunBlock& run : runs) {
    for (auto* old : {&run.cos_hi, &run.cos_lo, &run.sin_hi, &run.sin_lo}) old->clear();
    run.from_position = random() % 3 == 0 ? run.position : std::floor(between(-100000, 100000));
    run.from_step = random() % 4 == 0 ? 0 : run.step;
    for (const double f : run.inv_freq) {
      const double factors[] = {1, 1 + 0x1p-50, 0.75, between(0.1, 1.3), 0};
      run.from_inv_freq.push_back(f * factors[random() % std::size(factors)]);
    }
    AddEntries(run);
  }
  return runs;
}

// Expects errors within the bounds on every target.
void ExpectRunsWithinBounds(const std::vector<RunBlock>& runs, const char* name) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    double worst = 0;
    for (const RunBlock& run : runs) {
      const size_t count = run.inv_freq.size();
      HWY_ALIGN_MAX double inv_freq[32], log_base[32], from_inv_freq[32];
      ASSERT_EQ(count, 32u);
      std::copy_n(run.inv_freq.data(), count, inv_freq);
      std::copy_n(run.log_base.data(), run.log_base.size(), log_base);
      std::copy_n(run.from_inv_freq.data(), run.from_inv_freq.size(), from_inv_freq);
      const Spaced to = {run.position, run.step, inv_freq}, from = {run.from_position, run.from_step, from_inv_freq};
      std::vector<double> out(kBlock * count * kRunOutputs);
      ASSERT_TRUE(run.base.empty()
                      ? HWY_DYNAMIC_DISPATCH(EvaluateRun)(run.scale, to, run.from_inv_freq.empty() ? nullptr : &from,
                                                          run.block, count, out.data())
                      : HWY_DYNAMIC_DISPATCH(EvaluatePowersRun)(run.scale, run.position, run.step, run.block, inv_freq,
                                                                log_base, run.centre, run.scale_base, count,
                                                                out.data()));
      for (size_t i = 0; i < kBlock * count; ++i) {
        for (const bool cosine : {true, false}) {
          const double* value = out.data() + i * kRunOutputs + (cosine ? 0 : 3);
          const double want_hi = cosine ? run.cos_hi[i] : run.sin_hi[i],
                       want_lo = cosine ? run.cos_lo[i] : run.sin_lo[i];
          const double low = ((value[0] - want_hi) - want_lo) + value[2];
          const double high = ((value[1] - want_hi) - want_lo) - value[2];
          const double error = std::max(std::abs(low), std::abs(high));
          if (error > 0) worst = std::max(worst, error / value[2]);  // no error where the angle is always zero
        }
      }
    }
    hwy::SetSupportedTargetsForTest(0);
    std::cout << hwy::TargetName(target) << ": errors up to " << worst << " of the bound for " << name << "\n";
    EXPECT_LT(worst, 0.75) << "seed " << kSeed;
    EXPECT_GT(worst, 0.05);  // the bound is not far too large
  }
}

TEST(SinCosBound, OfRunsHoldsOnEveryTarget) { ExpectRunsWithinBounds(SampleRuns(), "runs"); }
TEST(SinCosBound, OfRunsOfDifferencesHoldsOnEveryTarget) {
  ExpectRunsWithinBounds(WithDifferences(SampleRuns()), "runs of differences");
}
TEST(SinCosBound, OfRunsWithPowersHoldsOnEveryTarget) {
  ExpectRunsWithinBounds(WithPowers(SampleRuns()), "runs with powers");
}

}  // namespace
}  // namespace posenc
#endif  // HWY_ONCE
