// Rounds doubles to a narrower binary format in one step, and stores them in it.

#if defined(POSENC_KERNELS_NARROW_FORMAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_NARROW_FORMAT_INL_H_
#undef POSENC_KERNELS_NARROW_FORMAT_INL_H_
#else
#define POSENC_KERNELS_NARROW_FORMAT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "posenc/base/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct NarrowFormat {
  double least_normal;
  double to_quantum;  // 1.5 * 2^52 / 2^(significant bits - 1)
};

inline NarrowFormat NarrowFormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFP16: return {0x1p-14, 0x1.8p42};
    case DType::kBF16: return {0x1p-126, 0x1.8p45};
    default: return {0x1p-126, 0x1.8p29};  // FP32
  }
}

// Returns a number so large that adding it to v rounds away the bits of v below the format's last bit.
template <class D, class V>
HWY_INLINE V RoundingShift(D d, V v, const NarrowFormat& format) {
  const V power_of_two = hn::And(v, hn::Inf(d));  // exponent bits only
  return hn::Mul(hn::Max(power_of_two, hn::Set(d, format.least_normal)), hn::Set(d, format.to_quantum));
}

// Returns v rounded to nearest, ties to even, as a double, subnormals included; a zero is positive. The exponent has no
// upper limit: StoreAs produces infinities. Requires |v| < 2^900 and a RoundingShift of v or of a number very near it.
template <class V>
HWY_INLINE V RoundBy(V shift, V v) {
  return hn::Sub(hn::Add(v, shift), shift);
}

template <class D, class V>
HWY_INLINE V RoundTo(D d, V v, const NarrowFormat& format) {
  const V rounded = hn::CopySign(RoundBy(RoundingShift(d, v, format), v), v);
  return hn::IfThenElse(hn::Lt(hn::Abs(v), hn::Set(d, 0x1p900)), rounded, v);  // NaN and overflow: unchanged
}

// Converts v to float. v must be representable as a float or too large for one, which gives infinity.
template <class D, class V>
HWY_INLINE hn::Vec<hn::Rebind<float, D>> ToFloat(D d, V v) {
  const hn::Rebind<float, D> df;
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  // On these targets Highway's DemoteTo saturates at the largest float.
  HWY_ALIGN double doubles[hn::MaxLanes(D())];
  HWY_ALIGN float floats[hn::MaxLanes(D())];
  hn::Store(v, d, doubles);
  for (size_t i = 0; i < hn::Lanes(d); ++i) floats[i] = static_cast<float>(doubles[i]);
  return hn::Load(df, floats);
#else
  (void)d;
  return hn::DemoteTo(df, v);
#endif
}

template <class D, class V>
HWY_INLINE void StoreAsBF16(D d, V v, uint16_t* out) {
  const hn::Rebind<float, D> df;
  const hn::RebindToSigned<decltype(df)> di;
  const auto bits = hn::ShiftRight<16>(hn::BitCast(hn::RebindToUnsigned<decltype(df)>(), ToFloat(d, v)));
  hn::StoreU(hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::BitCast(di, bits)), hn::Rebind<uint16_t, D>(), out);
}

// Uses integer arithmetic if the processor has no FP16 conversion: Highway's emulation breaks infinities and NaN.
template <class D, class V>
HWY_INLINE void StoreAsFP16(D d, V v, uint16_t* out) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> dh;
  hn::StoreU(hn::DemoteTo(dh, ToFloat(d, v)), dh, reinterpret_cast<hwy::float16_t*>(out));
#else
  const hn::Rebind<float, D> df;
  const hn::RebindToSigned<decltype(df)> di;
  const auto constant = [di](int32_t bits) HWY_ATTR { return hn::Set(di, bits); };
  const auto value = ToFloat(d, v);
  const auto magnitude = hn::Abs(value);
  const auto bits = hn::BitCast(di, magnitude);

  auto half = hn::ShiftRight<13>(hn::Sub(bits, constant(112 << 23)));  // rebiases the exponent
  // Subnormal (below 2^-14): a multiple of 2^-24, which is the weight of the last bit in [0.5, 1).
  const auto steps = hn::BitCast(di, hn::Add(magnitude, hn::Set(df, 0.5f)));
  half = hn::IfThenElse(hn::Lt(bits, constant(113 << 23)), hn::Sub(steps, constant(126 << 23)), half);
  half = hn::IfThenElse(hn::Gt(bits, constant((143 << 23) - 1)), constant(0x7C00), half);  // from 2^16
  half = hn::IfThenElse(hn::Gt(bits, constant(0x7F800000)), constant(0x7E00), half);       // NaN
  const auto sign = hn::And(hn::ShiftRight<16>(hn::BitCast(di, value)), constant(0x8000));
  hn::StoreU(hn::DemoteTo(hn::Rebind<uint16_t, D>(), hn::Or(half, sign)), hn::Rebind<uint16_t, D>(), out);
#endif
}

// Writes Lanes(d) elements of kDType to `out`, which needs no alignment. v must be rounded to kDType already.
template <DType kDType, class D, class V>
HWY_INLINE void StoreAs(D d, V v, void* out) {
  if constexpr (kDType == DType::kFP64) {
    hn::StoreU(v, d, static_cast<double*>(out));
  } else if constexpr (kDType == DType::kFP32) {
    hn::StoreU(ToFloat(d, v), hn::Rebind<float, D>(), static_cast<float*>(out));
  } else if constexpr (kDType == DType::kBF16) {
    StoreAsBF16(d, v, static_cast<uint16_t*>(out));
  } else {
    StoreAsFP16(d, v, static_cast<uint16_t*>(out));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
