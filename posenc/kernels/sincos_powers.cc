#include "posenc/kernels/sincos_powers.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "posenc/kernels/first_scale.h"
#include "posenc/kernels/position_runs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/sincos_powers.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "posenc/kernels/exp-inl.h"
#include "posenc/kernels/sincos_fast-inl.h"
#include "posenc/kernels/sincos_powers_run-inl.h"
#include "posenc/kernels/sincos_run-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Computes and stores the entries of one vector of columns. Returns the lanes in which both are proven.
template <DType kDType, class D, class V>
HWY_INLINE hn::Mask<TestedLanes<kDType>> StorePair(D d, V position, V inv_freq, V x, V scale, uint8_t* cos_out,
                                                   uint8_t* sin_out) {
  V angle_lo, cos, sin, turns;
  const V angle = TwoProduct(d, position, inv_freq, angle_lo);
  NarrowSinCos(d, angle, angle_lo, cos, sin, turns);
  // An angle of zero: the cosine is set because Split(inv_freq) may have overflowed, the sine below because it is +0
  // for any scale.
  const auto zero = hn::Or(hn::Eq(position, hn::Zero(d)), hn::Eq(inv_freq, hn::Zero(d)));
  cos = hn::IfThenElse(zero, hn::Set(d, 1.0), cos);

  const V size = hn::Abs(x);
  const auto in_range = hn::And(hn::Le(size, hn::Set(d, kMostGrowth)), hn::Or(OrdinaryAngle(d, angle), zero));
  const V factor = hn::Mul(Exp<true>(d, hn::IfThenElseZero(in_range, x)), scale);
  cos = hn::Mul(cos, factor);
  sin = hn::IfThenZeroElse(zero, hn::Mul(sin, factor));

  const hn::RebindToUnsigned<TestedLanes<kDType>> du;
  auto doubt = hn::Zero(du);
  const V relative = hn::MulAdd(size, hn::Set(d, kGrowthRelative), hn::Set(d, kNarrowRelative));
  const V turn_error = hn::Mul(turns, hn::Mul(hn::Abs(factor), hn::Set(d, kNarrowPerTurn)));
  const auto store = [&](V value, uint8_t* out) HWY_ATTR {
    // Outside the range the ends are infinities of both signs, which StoreRounded doubts.
    value = hn::IfThenElseZero(in_range, value);
    const V error = hn::IfThenElse(in_range, hn::MulAdd(hn::Abs(value), relative, turn_error), hn::Inf(d));
    StoreRounded<kDType, false>(d, hn::Sub(value, error), hn::Add(value, error), doubt, out);
  };
  store(cos, cos_out);
  store(sin, sin_out);
  return hn::RebindMask(TestedLanes<kDType>(), hn::Eq(doubt, hn::Zero(du)));
}

// A section of the columns: their inputs, padded with zeros to whole vectors.
struct PowersTile {
  size_t first, count;
  HWY_ALIGN double inv_freq[kTile];
  HWY_ALIGN double log_base[kTile];
};

// Stores the caller's entries of a row in the columns [begin, begin + count) that are not `proven`.
template <DType kDType>
HWY_NOINLINE void FillSlowly(const SinCosPowers& work, const SlowPower& slow, size_t row, size_t begin, size_t count,
                             const uint8_t* proven) {
  const hn::CappedTag<double, 1> d1;
  for (size_t i = 0; i < count; ++i) {
    if ((proven[i / 8] >> (i % 8) & 1) != 0) continue;
    const CosSin value = slow(row, begin + i);
    const size_t at = (row * work.rows.pairs + begin + i) * SizeOf(kDType);
    StoreAs<kDType>(d1, hn::Set(d1, value.cos), static_cast<uint8_t*>(work.rows.cos) + at);
    StoreAs<kDType>(d1, hn::Set(d1, value.sin), static_cast<uint8_t*>(work.rows.sin) + at);
  }
}

// Fills the tile's columns of rows [row, end), one by one.
template <DType kDType>
HWY_NOINLINE void FillRows(const SinCosPowers& work, const SlowPower& slow, const FirstScale& a, const PowersTile& tile,
                           size_t row, size_t end) {
  const Doubles d;
  using V = hn::Vec<Doubles>;
  const TestedLanes<kDType> dt;
  constexpr size_t kSize = SizeOf(kDType);
  const size_t lanes = hn::Lanes(d);
  const V scale = hn::Set(d, a.scale.hi);
  for (; row < end; ++row) {
    const double position = work.rows.positions[row];
    if (!a.in_range || !OrdinaryPosition(position)) {
      const uint8_t none[(kTile + 7) / 8] = {};
      FillSlowly<kDType>(work, slow, row, tile.first, tile.count, none);
      continue;
    }
    const V p = hn::Set(d, position), exponent = hn::Set(d, (position - work.centre) / work.scale_base);
    const size_t offset = (row * work.rows.pairs + tile.first) * kSize;
    uint8_t *cos = static_cast<uint8_t*>(work.rows.cos) + offset, *sin = static_cast<uint8_t*>(work.rows.sin) + offset;
    for (size_t i = 0; i < tile.count; i += lanes, cos += lanes * kSize, sin += lanes * kSize) {
      const size_t count = std::min(lanes, tile.count - i);
      uint8_t last[2][hn::MaxLanes(Doubles()) * kSize];  // the last vector may reach beyond the row
      const V x = hn::Mul(exponent, hn::Load(d, tile.log_base + i));
      const auto proven = StorePair<kDType>(d, p, hn::Load(d, tile.inv_freq + i), x, scale,
                                            count == lanes ? cos : last[0], count == lanes ? sin : last[1]);
      if (count < lanes) {
        std::memcpy(cos, last[0], count * kSize);
        std::memcpy(sin, last[1], count * kSize);
      }
      if (HWY_LIKELY(hn::AllTrue(dt, proven))) continue;
      uint8_t bits[(hn::MaxLanes(Doubles()) + 7) / 8];
      hn::StoreMaskBits(dt, proven, bits);
      FillSlowly<kDType>(work, slow, row, tile.first + i, count, bits);
    }
  }
}

template <DType kDType>
void FillTable(const SinCosPowers& work, const SlowPower& slow) {
  const SinCosRows& rows = work.rows;
  const FirstScale a = FirstScaleOf(rows.scale, rows.divide);
  PowersTile tile;
  PowersRun run;
  std::vector<size_t> alone;  // rows of a run that are computed one by one
  for (tile.first = 0; tile.first < rows.pairs; tile.first += kTile) {
    tile.count = std::min(kTile, rows.pairs - tile.first);
    std::fill_n(std::copy_n(rows.inv_freq + tile.first, tile.count, tile.inv_freq), kTile - tile.count, 0.0);
    std::fill_n(std::copy_n(work.log_base + tile.first, tile.count, tile.log_base), kTile - tile.count, 0.0);
    for (size_t row = 0; row < rows.rows;) {
      const double* at = rows.positions + row;
      const PositionRun spaced = a.in_range ? FirstRun(at, rows.rows - row) : PositionRun{rows.rows - row, false};
      if (spaced.equally_spaced &&
          StartPowersRun(work, a.scale, {at[0], at[1], tile.inv_freq}, tile.log_base, tile.count, run)) {
        alone.clear();
        FillRun<kDType, false>(rows, row, spaced.rows, tile.first, tile.count, run, alone);
        for (const size_t unproven : alone) FillRows<kDType>(work, slow, a, tile, unproven, unproven + 1);
      } else {
        FillRows<kDType>(work, slow, a, tile, row, row + spaced.rows);
      }
      row += spaced.rows;
    }
  }
}

void FillTableOfPowers(const SinCosPowers& work, const SlowPower& slow) {
  switch (work.rows.dtype) {
    case DType::kFP16: return FillTable<DType::kFP16>(work, slow);
    case DType::kBF16: return FillTable<DType::kBF16>(work, slow);
    default: return FillTable<DType::kFP32>(work, slow);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {

HWY_EXPORT(FillTableOfPowers);

void ComputeSinCosPowers(const SinCosPowers& work, const SlowPower& slow) {
  HWY_DYNAMIC_DISPATCH(FillTableOfPowers)(work, slow);
}

}  // namespace posenc
#endif  // HWY_ONCE
