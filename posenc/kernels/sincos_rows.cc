#include "posenc/kernels/sincos_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "posenc/kernels/first_scale.h"
#include "posenc/kernels/position_runs.h"
#include "posenc/kernels/sincos_slow.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/sincos_rows.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "posenc/kernels/narrow_format-inl.h"
#include "posenc/kernels/sincos_fast-inl.h"
#include "posenc/kernels/sincos_run-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A section of a row, in double: its frequencies, padded to whole vectors with 0 (an angle that always passes), and its
// cosines and sines, already rounded.
struct Tile {
  HWY_ALIGN double inv_freq[kTile];
  HWY_ALIGN double from_inv_freq[kTile];  // of differences
  HWY_ALIGN double cos[kTile];
  HWY_ALIGN double sin[kTile];
  uint16_t unproven[kTile];
  size_t unproven_count;
};

// Values that all entries of one call share.
struct Constants {
  FirstScale first;     // a or 1/a for kExact, else 1
  double zero_cos;      // the first rounded value of the cosine at angle zero
  NarrowFormat format;  // format of the first rounding; unused for FP64
};

Constants ConstantsOf(const SinCosRows& work) {
  Constants constants{FirstScale(), 1.0, NarrowFormatOf(FirstRounding(work))};
  if (work.frequencies != Frequencies::kExact || work.scale == 1.0) return constants;
  constants.zero_cos = SinCosSlow(work, 0.0, 0.0).cos;
  constants.first = FirstScaleOf(work.scale, work.divide);
  return constants;
}

// Ziv's test: rounds `value` in place. True where everything within the error bound rounds to the same number. The
// rounding error of the sum value + error is far below the slack in the bounds.
template <class D, class V>
HWY_INLINE hn::Mask<D> RoundIfProven(D d, V turn_error, const Constants& constants, V& value) {
  const V magnitude = hn::Abs(value);
  const V error = hn::MulAdd(magnitude, hn::Set(d, kNarrowRelative), turn_error);
  const V shift = RoundingShift(d, value, constants.format);
  const V rounded = RoundBy(shift, hn::Sub(value, error));
  // With an error this small one shift is right for the whole interval, and its ends have the sign of its middle.
  const auto usable = hn::Gt(magnitude, hn::Mul(turn_error, hn::Set(d, 0x1p31)));
  const auto proven = hn::And(hn::Eq(rounded, RoundBy(shift, hn::Add(value, error))), usable);
  value = hn::CopySign(rounded, value);
  return proven;
}
template <class D, class V>
HWY_INLINE hn::Mask<D> RoundIfProven(D d, V turn_error, const Constants& constants, V& value, V value_lo) {
  V lo;
  value = Multiply(d, value, value_lo, hn::Set(d, constants.first.scale.hi), hn::Set(d, constants.first.scale.lo), lo);
  value = FastTwoSum(value, lo, lo);
  const V error = hn::MulAdd(hn::Abs(value), hn::Set(d, kWideRelative), turn_error);
  const V rounded = hn::Add(value, hn::Sub(lo, error));
  const auto proven = hn::Eq(rounded, hn::Add(value, hn::Add(lo, error)));
  value = rounded;
  return proven;
}

// `angle_error`: bound of the angle's absolute error.
template <bool kWide, class D, class V>
HWY_INLINE hn::Mask<D> RoundedSinCos(D d, V x_hi, V x_lo, V angle_error, const Constants& constants, V& cos, V& sin) {
  const V scale = hn::Set(d, constants.first.scale.hi);
  const V size = hn::Abs(scale);
  V turns;
  if constexpr (kWide) {
    V cos_lo, sin_lo;
    WideSinCos(d, x_hi, x_lo, cos, cos_lo, sin, sin_lo, turns);
    const V turn_error = hn::Mul(size, hn::MulAdd(turns, hn::Set(d, kWidePerTurn), angle_error));
    const auto cos_proven = RoundIfProven(d, turn_error, constants, cos, cos_lo);
    return hn::And(cos_proven, RoundIfProven(d, turn_error, constants, sin, sin_lo));
  } else {
    NarrowSinCos(d, x_hi, x_lo, cos, sin, turns);
    cos = hn::Mul(cos, scale);
    sin = hn::Mul(sin, scale);
    const V turn_error = hn::Mul(size, hn::MulAdd(turns, hn::Set(d, kNarrowPerTurn), angle_error));
    const auto cos_proven = RoundIfProven(d, turn_error, constants, cos);
    return hn::And(cos_proven, RoundIfProven(d, turn_error, constants, sin));
  }
}

// Computes one position's cosines and sines for the tile's first `count` frequencies; lists unproven ones in `tile`.
// `from`: the position that is subtracted, times the tile's from_inv_freq, if kDifference.
template <Frequencies kFrequencies, bool kWide, bool kDifference>
HWY_NOINLINE void FillTile(const Constants& constants, double position, double from, size_t count, Tile& tile) {
  const Doubles d;
  using V = hn::Vec<Doubles>;
  const size_t lanes = hn::Lanes(d);
  // Within these bounds, an ordinary angle cannot overflow or underflow; a NaN fails every comparison below.
  const bool usable = constants.first.in_range && OrdinaryPosition(position) && OrdinaryPosition(from);
  const V p = hn::Set(d, usable ? position : std::numeric_limits<double>::quiet_NaN());
  tile.unproven_count = 0;
  for (size_t i = 0; i < count; i += lanes) {
    V x_hi, x_lo, cos, sin, error = hn::Zero(d);
    hn::Mask<Doubles> zero;
    if constexpr (kDifference) {
      zero = AngleDifference(d, p, hn::Load(d, tile.inv_freq + i), hn::Set(d, from),
                             hn::Load(d, tile.from_inv_freq + i), x_hi, x_lo, error);
    } else {
      zero = Angle<kFrequencies>(d, p, hn::Load(d, tile.inv_freq + i), x_hi, x_lo);
    }
    auto proven = RoundedSinCos<kWide>(d, x_hi, x_lo, error, constants, cos, sin);
    proven = hn::Or(hn::And(proven, OrdinaryAngle(d, x_hi)), zero);
    hn::Store(hn::IfThenElse(zero, hn::Set(d, constants.zero_cos), cos), d, tile.cos + i);
    hn::Store(hn::IfThenZeroElse(zero, sin), d, tile.sin + i);
    if (HWY_LIKELY(hn::AllTrue(d, proven))) continue;
    uint8_t bits[(kTile + 7) / 8];
    hn::StoreMaskBits(d, proven, bits);
    for (size_t lane = 0; lane < std::min(lanes, count - i); ++lane) {
      const bool lane_proven = (bits[lane / 8] >> (lane % 8) & 1) != 0;
      if (!lane_proven) tile.unproven[tile.unproven_count++] = static_cast<uint16_t>(i + lane);
    }
  }
}

// Second step of kFloat32 and kFloat64: multiplies (or divides) by a in that type; ScaleAndRound rounds to dtype.
template <class D, class V>
HWY_INLINE V ScaledBy(D d, V v, hn::TFromD<D> a, bool divide) {
  return divide ? hn::Div(v, hn::Set(d, a)) : hn::Mul(v, hn::Set(d, a));
}
void ScaleAndRound(const SinCosRows& work, size_t count, double* values) {
  const Doubles d;
  const hn::Rebind<float, Doubles> df;
  const NarrowFormat format = NarrowFormatOf(work.dtype);
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto v = hn::Load(d, values + i);
    auto scaled = v;
    if (work.frequencies == Frequencies::kFloat32) {
      scaled = hn::PromoteTo(d, ScaledBy(df, ToFloat(d, v), static_cast<float>(work.scale), work.divide));
    } else {
      scaled = ScaledBy(d, v, work.scale, work.divide);
    }
    if (work.dtype != DType::kFP64) scaled = RoundTo(d, scaled, format);
    // A zero in `values` is the sine of angle zero, which stays +0 for any scale.
    hn::Store(hn::IfThenZeroElse(hn::Eq(v, hn::Zero(d)), scaled), d, values + i);
  }
}

template <DType kDType>
void StoreTile(const double* values, size_t count, void* out) {
  const Doubles d;
  const hn::CappedTag<double, 1> d1;
  uint8_t* bytes = static_cast<uint8_t*>(out);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    StoreAs<kDType>(d, hn::Load(d, values + i), bytes + i * SizeOf(kDType));
  }
  for (; i < count; ++i) StoreAs<kDType>(d1, hn::Load(d1, values + i), bytes + i * SizeOf(kDType));
}

using FillFunction = void (*)(const Constants&, double, double, size_t, Tile&);
using StoreFunction = void (*)(const double*, size_t, void*);

FillFunction FillFunctionFor(const SinCosRows& work) {
  constexpr Frequencies kExact = Frequencies::kExact;
  const bool wide = work.dtype == DType::kFP64;
  if (work.from_positions != nullptr) return wide ? FillTile<kExact, true, true> : FillTile<kExact, false, true>;
  switch (work.frequencies) {
    case Frequencies::kExact: return wide ? FillTile<kExact, true, false> : FillTile<kExact, false, false>;
    case Frequencies::kFloat32: return FillTile<Frequencies::kFloat32, false, false>;
    case Frequencies::kFloat64: return FillTile<Frequencies::kFloat64, true, false>;
  }
  __builtin_unreachable();
}

StoreFunction StoreFunctionFor(DType dtype) {
  switch (dtype) {
    case DType::kFP64: return StoreTile<DType::kFP64>;
    case DType::kFP16: return StoreTile<DType::kFP16>;
    case DType::kBF16: return StoreTile<DType::kBF16>;
    default: return StoreTile<DType::kFP32>;
  }
}

using RunFunction = void (*)(const SinCosRows&, size_t, size_t, size_t, size_t, RunTile&, std::vector<size_t>&);

// Returns whether stores of a run may bypass the caches: every store must be a whole, aligned vector, of at least half
// a cache line. Runs write four rows in turn, and shorter stores past the caches (AVX2's have 16 bytes) then took 1.7
// to 3.5 times as long on a Zen 3.
bool CanStream(const SinCosRows& work) {
  const size_t lanes = hn::Lanes(Doubles()), alignment = lanes * sizeof(float);
  if (alignment < 32) return false;
  const auto aligned = [alignment](const void* out) { return reinterpret_cast<uintptr_t>(out) % alignment == 0; };
  return work.large && work.dtype == DType::kFP32 && work.pairs % lanes == 0 && aligned(work.cos) && aligned(work.sin);
}

// Returns null if an entry takes more than one rounding, if doubles are too narrow, or if the scale is out of range.
RunFunction RunFunctionFor(const SinCosRows& work, const Constants& constants) {
  if (work.frequencies != Frequencies::kExact || !constants.first.in_range) return nullptr;
  switch (work.dtype) {
    case DType::kFP32:
      return CanStream(work) ? FillRun<DType::kFP32, true, RunTile> : FillRun<DType::kFP32, false, RunTile>;
    case DType::kFP16: return FillRun<DType::kFP16, false, RunTile>;
    case DType::kBF16: return FillRun<DType::kBF16, false, RunTile>;
    default: return nullptr;
  }
}

// Returns the run of rows from `row` on: of differences, both positions are equally spaced.
PositionRun RunFrom(const SinCosRows& work, size_t row, size_t end) {
  const PositionRun run = FirstRun(work.positions + row, end - row);
  if (work.from_positions == nullptr) return run;
  const PositionRun from = FirstRun(work.from_positions + row, run.rows);
  return {from.rows, run.equally_spaced && from.equally_spaced};
}

void RunOnTarget(const SinCosRows& work, size_t begin, size_t end, SinCosSlowPath slow_path) {
  const Constants constants = ConstantsOf(work);
  const FillFunction fill = FillFunctionFor(work);
  const StoreFunction store = StoreFunctionFor(work.dtype);
  const RunFunction fill_run = RunFunctionFor(work, constants);
  const size_t element = SizeOf(work.dtype);
  const bool difference = work.from_positions != nullptr;
  const bool rounded_again =
      work.frequencies != Frequencies::kExact && (work.scale != 1.0 || work.dtype != FirstRounding(work));
  Tile tile;
  RunTile run_tile;
  std::vector<size_t> alone;  // rows that are computed one by one
  for (size_t first = 0; first < work.pairs; first += kTile) {
    const size_t count = std::min(kTile, work.pairs - first);
    std::fill_n(std::copy_n(work.inv_freq + first, count, tile.inv_freq), kTile - count, 0.0);
    if (difference) std::fill_n(std::copy_n(work.from_inv_freq + first, count, tile.from_inv_freq), kTile - count, 0.0);
    const auto fill_row = [&](size_t row) {
      // kFloat32 rounds the position to float32, once per row.
      const double position =
          work.frequencies == Frequencies::kFloat32 ? static_cast<float>(work.positions[row]) : work.positions[row];
      fill(constants, position, difference ? work.from_positions[row] : 0.0, count, tile);
      for (size_t k = 0; slow_path != nullptr && k < tile.unproven_count; ++k) {
        const size_t pair = tile.unproven[k];
        const CosSin value = difference ? SinCosSlowOfDifference(work, row, first + pair)
                                        : slow_path(work, position, tile.inv_freq[pair]);
        tile.cos[pair] = value.cos;
        tile.sin[pair] = value.sin;
      }
      if (rounded_again) {
        ScaleAndRound(work, count, tile.cos);
        ScaleAndRound(work, count, tile.sin);
      }
      const size_t offset = (row * work.pairs + first) * element;
      store(tile.cos, count, static_cast<uint8_t*>(work.cos) + offset);
      store(tile.sin, count, static_cast<uint8_t*>(work.sin) + offset);
    };
    const auto start_run = [&](size_t row) {
      const auto angles = [row](const double* positions, const double* inv_freq) -> RunAngles {
        return {positions[row], positions[row + 1], inv_freq};
      };
      const RunAngles to = angles(work.positions, tile.inv_freq);
      if (!difference) return StartRun(constants.first.scale, to, nullptr, count, run_tile);
      const RunAngles from = angles(work.from_positions, tile.from_inv_freq);
      return StartRun(constants.first.scale, to, &from, count, run_tile);
    };
    for (size_t row = begin; row < end;) {
      const PositionRun run = fill_run != nullptr ? RunFrom(work, row, end) : PositionRun{end - row, false};
      if (run.equally_spaced && start_run(row)) {
        alone.clear();
        fill_run(work, row, run.rows, first, count, run_tile, alone);
        if (CanStream(work)) hwy::FlushStream();  // before entries are stored again
        for (const size_t unproven : alone) fill_row(unproven);
      } else {
        for (size_t i = 0; i < run.rows; ++i) fill_row(row + i);
      }
      row += run.rows;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {

HWY_EXPORT(RunOnTarget);

void RunWithSlowPath(const SinCosRows& work, size_t begin, size_t end, SinCosSlowPath slow_path) {
  HWY_DYNAMIC_DISPATCH(RunOnTarget)(work, begin, end, slow_path);
}

void ComputeSinCosRows(const SinCosRows& work, size_t begin, size_t end) {
  RunWithSlowPath(work, begin, end, SinCosSlow);
}

}  // namespace posenc
#endif  // HWY_ONCE
