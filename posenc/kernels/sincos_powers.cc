#include "posenc/kernels/sincos_powers.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/sincos_powers.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "posenc/kernels/exp-inl.h"
#include "posenc/kernels/sincos_fast-inl.h"
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
  // Exact here even if Split(inv_freq) overflowed. The sine of angle zero is +0 for any scale.
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

template <DType kDType>
void FillRow(const SinCosPowers& row, double position, double exponent, uint8_t* cos, uint8_t* sin,
             std::vector<size_t>& unproven) {
  const Doubles d;
  using V = hn::Vec<Doubles>;
  constexpr size_t kSize = SizeOf(kDType);
  const size_t lanes = hn::Lanes(d);
  const V p = hn::Set(d, position), t = hn::Set(d, exponent), scale = hn::Set(d, row.scale.scale.hi);
  const auto fill = [&](size_t i, V inv_freq, V log_base, size_t count, uint8_t* cos_out, uint8_t* sin_out) HWY_ATTR {
    const TestedLanes<kDType> dt;
    const auto proven = StorePair<kDType>(d, p, inv_freq, hn::Mul(t, log_base), scale, cos_out, sin_out);
    if (HWY_LIKELY(hn::AllTrue(dt, proven))) return;
    uint8_t bits[(hn::MaxLanes(Doubles()) + 7) / 8];
    hn::StoreMaskBits(dt, proven, bits);
    for (size_t lane = 0; lane < count; ++lane) {
      const bool lane_proven = (bits[lane / 8] >> (lane % 8) & 1) != 0;
      if (!lane_proven) unproven.push_back(i + lane);
    }
  };
  size_t i = 0;
  for (; i + lanes <= row.pairs; i += lanes) {
    fill(i, hn::LoadU(d, row.inv_freq + i), hn::LoadU(d, row.log_base + i), lanes, cos + i * kSize, sin + i * kSize);
  }
  if (const size_t rest = row.pairs - i; rest > 0) {
    HWY_ALIGN double inv_freq[hn::MaxLanes(Doubles())] = {}, log_base[hn::MaxLanes(Doubles())] = {};
    std::copy_n(row.inv_freq + i, rest, inv_freq);
    std::copy_n(row.log_base + i, rest, log_base);
    uint8_t last[2][hn::MaxLanes(Doubles()) * kSize];
    fill(i, hn::Load(d, inv_freq), hn::Load(d, log_base), rest, last[0], last[1]);
    std::memcpy(cos + i * kSize, last[0], rest * kSize);
    std::memcpy(sin + i * kSize, last[1], rest * kSize);
  }
}

void FillRowOfPowers(const SinCosPowers& row, double position, double exponent, uint8_t* cos, uint8_t* sin,
                     std::vector<size_t>& unproven) {
  if (!row.scale.in_range || !OrdinaryPosition(position)) {
    unproven.resize(row.pairs);
    std::iota(unproven.begin(), unproven.end(), size_t{0});
    return;
  }
  unproven.clear();
  switch (row.dtype) {
    case DType::kFP16: return FillRow<DType::kFP16>(row, position, exponent, cos, sin, unproven);
    case DType::kBF16: return FillRow<DType::kBF16>(row, position, exponent, cos, sin, unproven);
    default: return FillRow<DType::kFP32>(row, position, exponent, cos, sin, unproven);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {

HWY_EXPORT(FillRowOfPowers);

void ComputeSinCosPowers(const SinCosPowers& row, double position, double exponent, void* cos, void* sin,
                         std::vector<size_t>& unproven) {
  HWY_DYNAMIC_DISPATCH(FillRowOfPowers)
  (row, position, exponent, static_cast<uint8_t*>(cos), static_cast<uint8_t*>(sin), unproven);
}

}  // namespace posenc
#endif  // HWY_ONCE
