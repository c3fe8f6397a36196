// Loads, rounds and stores lanes of a floating-point format, for every CPU target.
//
// Arithmetic runs in lanes of float or double. Elements in memory have a Format (convert.h) and any alignment. Highway
// 1.0.3's DemoteTo truncates to BF16 everywhere, and without a native FP16 conversion it mishandles overflow, infinity
// and NaN. This file uses integer arithmetic in these cases. Native and integer conversions give the same bytes.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "posenc/kernels/convert.h"

// Per-target include guard.
#if defined(POSENC_KERNELS_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef POSENC_KERNELS_CONVERT_INL_H_
#undef POSENC_KERNELS_CONVERT_INL_H_
#else
#define POSENC_KERNELS_CONVERT_INL_H_
#endif

#include "hwy/cache_control.h"
#include "hwy/highway.h"

#ifdef __FAST_MATH__
#error "The kernels promise IEEE arithmetic: compile without -ffast-math"
#endif
static_assert(std::endian::native == std::endian::little, "the first of two elements is the low half of their lane");

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
inline constexpr bool kDoubleLanes = std::is_same_v<hn::TFromD<D>, double>;

// True if the processor converts between float and FP16 natively, correctly rounded.
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4
inline constexpr bool kNativeFloat16 = false;
#else
inline constexpr bool kNativeFloat16 = true;
#endif
template <class Format>
inline constexpr bool kNative = (kNativeFloat16 && std::is_same_v<Format, Float16>);

// True if a vector of this tag is shorter than a register. Highway accesses such a vector as an object of a scalar
// type, which would require alignment; LoadBytes and StoreBytes copy it through an integer of its size instead.
template <class D>
inline constexpr bool kShortVector = !HWY_HAVE_SCALABLE && hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) < 16;
template <class D>
using ShortVectorBits = hwy::UnsignedFromSize<hn::MaxLanes(D()) * sizeof(hn::TFromD<D>)>;

template <class D>
HWY_INLINE hn::Vec<D> LoadBytes(D d, const std::byte* from) {
  if constexpr (kShortVector<D>) {
    ShortVectorBits<D> bits;
    std::memcpy(&bits, from, sizeof(bits));
    return hn::BitCast(d, hn::Set(hn::CappedTag<ShortVectorBits<D>, 1>(), bits));
  } else {
    return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D>*>(from));
  }
}

template <class D>
HWY_INLINE void StoreBytes(hn::Vec<D> v, D d, std::byte* to) {
  if constexpr (kShortVector<D>) {
    const ShortVectorBits<D> bits = hn::GetLane(hn::BitCast(hn::CappedTag<ShortVectorBits<D>, 1>(), v));
    std::memcpy(to, &bits, sizeof(bits));
  } else {
    hn::StoreU(v, d, reinterpret_cast<hn::TFromD<D>*>(to));
  }
}

// Rounds double -> float once. Highway's emulated targets saturate where IEEE arithmetic overflows to infinity.
template <class D64>
HWY_INLINE hn::Vec<hn::Rebind<float, D64>> NarrowToFloat([[maybe_unused]] D64 d64, hn::Vec<D64> v) {
  const hn::Rebind<float, D64> d32;
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d32, static_cast<float>(hn::GetLane(v)));
#elif HWY_TARGET == HWY_EMU128
  double wide[hn::MaxLanes(D64())];
  float narrow[hn::MaxLanes(D64())];
  hn::StoreU(v, d64, wide);
  for (size_t i = 0; i < hn::MaxLanes(D64()); ++i) narrow[i] = static_cast<float>(wide[i]);
  return hn::LoadU(d32, narrow);
#else
  return hn::DemoteTo(d32, v);
#endif
}

// Returns the low 16 bits of each lane as a float (exact). The upper 16 bits are ignored.
template <class D32, class VU32 = hn::Vec<hn::RebindToUnsigned<D32>>>
HWY_INLINE hn::Vec<D32> WidenLow(BFloat16, D32 d, VU32 lanes) {
  return hn::BitCast(d, hn::ShiftLeft<16>(lanes));
}

template <class D32, class VU32 = hn::Vec<hn::RebindToUnsigned<D32>>>
HWY_INLINE hn::Vec<D32> WidenLow(Float16, D32 d, VU32 lanes) {
  const hn::RebindToUnsigned<D32> du;
  const hn::RebindToSigned<D32> di;
  const auto sign = hn::ShiftLeft<16>(hn::And(lanes, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(lanes, hn::Set(du, 0x7fffu)));
  // The exponent's bias grows by 112; infinity and NaN go from the largest exponent to the largest exponent.
  const auto rebias = hn::Set(du, 112u << 23);
  const auto normal = hn::Add(magnitude, rebias);
  const auto special = hn::Add(normal, rebias);
  // A subnormal m * 2^-24 is 2^-14 + m * 2^-24 less 2^-14, which is exact.
  const auto with_offset = hn::BitCast(d, hn::Add(magnitude, hn::Set(du, 113u << 23)));
  const auto subnormal = hn::BitCast(du, hn::Sub(with_offset, hn::Set(d, 0x1p-14f)));
  const auto as_signed = hn::BitCast(di, magnitude);
  const auto is_subnormal = hn::RebindMask(du, hn::Lt(as_signed, hn::Set(di, 0x0400 << 13)));
  const auto is_finite = hn::RebindMask(du, hn::Lt(as_signed, hn::Set(di, 0x7c00 << 13)));
  const auto wide = hn::IfThenElse(is_subnormal, subnormal, hn::IfThenElse(is_finite, normal, special));
  return hn::BitCast(d, hn::Or(wide, sign));
}

// Rounds each float to BFloat16, in the upper half of its lane. The lower half is unspecified unless v is a NaN. The
// cut-off part carries if it exceeds a half, or equals a half beside an odd number: then its last bit is set first.
template <class Format, class D32>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D32>> RoundUpperHalf(Format, D32, hn::Vec<D32> v) {
  const hn::RebindToUnsigned<D32> du;
  const auto bits = hn::BitCast(du, v);
  const auto sticky = hn::OrAnd(bits, hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(sticky, hn::Set(du, 0x7fffu));
  if constexpr (std::is_same_v<Format, BFloat16Arithmetic>) return rounded;
  const auto quiet_nan = hn::Or(bits, hn::Set(du, 0x00400000u));
  return hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet_nan, rounded);
}

// Rounds each float to an element in the low 16 bits of its lane; the upper 16 bits are zero.
template <class Format, class D32>
requires kIsBFloat16<Format> HWY_INLINE hn::Vec<hn::RebindToUnsigned<D32>> NarrowLow(Format format, D32 d,
                                                                                     hn::Vec<D32> v) {
  return hn::ShiftRight<16>(RoundUpperHalf(format, d, v));
}

template <class D32>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D32>> NarrowLow(Float16, D32 d, hn::Vec<D32> v) {
  const hn::RebindToUnsigned<D32> du;
  const hn::RebindToSigned<D32> di;
  const auto bits = hn::BitCast(du, v);
  const auto sign = hn::And(bits, hn::Set(du, 0x80000000u));
  const auto magnitude = hn::Xor(bits, sign);
  const auto as_signed = hn::BitCast(di, magnitude);
  // Normal: lower the exponent's bias by 112 and round away 13 bits; from 65520 on the carry produces infinity.
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto normal = hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, odd), hn::Set(du, 0x0fffu - (112u << 23))));
  // Subnormal: the last bit of 1/2 + |v| weighs 2^-24, so the addition rounds as needed; its low bits are the result.
  const auto with_offset = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
  const auto subnormal = hn::Sub(hn::BitCast(du, with_offset), hn::Set(du, 0x3f000000u));
  const auto quiet_nan = hn::Or(hn::Set(du, 0x7e00u), hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x03ffu)));
  const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
  const auto special = hn::IfThenElse(is_nan, quiet_nan, hn::Set(du, 0x7c00u));
  const auto is_subnormal = hn::RebindMask(du, hn::Lt(as_signed, hn::Set(di, 0x38800000)));
  const auto in_range = hn::RebindMask(du, hn::Lt(as_signed, hn::Set(di, 0x47800000)));
  const auto narrow = hn::IfThenElse(is_subnormal, subnormal, hn::IfThenElse(in_range, normal, special));
  return hn::Or(narrow, hn::ShiftRight<16>(sign));
}

// RoundLanes for lanes with a wider exponent range than Format's. With M explicit bits in a lane and m in the format,
// adding 2^(M - m) times the lane's own power of two pushes its last M - m bits out of the significand, and so rounds
// them away. Below the smallest normal number the power is constant, like the format's unit in the last place.
template <class Format, class D>
HWY_INLINE hn::Vec<D> RoundToGrid(Format, D d, hn::Vec<D> v) {
  using T = hn::TFromD<D>;
  using Lane = std::conditional_t<kDoubleLanes<D>, Float64, Float32>;
  constexpr int kDropped = Lane::kMantissaBits - Format::kMantissaBits;
  static_assert(kDropped > 0 && Format::kMaxExponent + 1 + kDropped <= Lane::kMaxExponent);
  const auto infinity = hn::Set(d, std::numeric_limits<T>::infinity());
  const auto magnitude = hn::Abs(v);
  const auto power = hn::And(magnitude, infinity);  // mantissa bits cleared: a power of two, zero or infinity
  const auto least = hn::Set(d, static_cast<T>(PowerOfTwo(Format::kMinExponent)));
  const auto most = hn::Set(d, static_cast<T>(PowerOfTwo(Format::kMaxExponent + 1)));
  const auto shifter = hn::Mul(hn::Min(hn::Max(power, least), most), hn::Set(d, static_cast<T>(PowerOfTwo(kDropped))));
  const auto rounded = hn::Sub(hn::Add(magnitude, shifter), shifter);
  const auto overflows = hn::Gt(rounded, hn::Set(d, static_cast<T>(kLargestFinite<Format>)));
  return hn::CopySignToAbs(hn::IfThenElse(overflows, infinity, rounded), v);
}

// Rounds double lanes once to float lanes that hold values of Format: on Format's grid the narrowing is exact.
template <class Format, class D64>
HWY_INLINE hn::Vec<hn::Rebind<float, D64>> NarrowDoubles(Format format, D64 d, hn::Vec<D64> v) {
  if constexpr (std::is_same_v<Format, Float32>) {
    return NarrowToFloat(d, v);
  } else {
    return NarrowToFloat(d, RoundToGrid(format, d, v));
  }
}

// Rounds each lane to the nearest value of Format.
template <class Format, class D>
HWY_INLINE hn::Vec<D> RoundLanes(Format format, D d, hn::Vec<D> v) {
  if constexpr (std::is_same_v<Format, Float32> && kDoubleLanes<D>) {
    return hn::PromoteTo(d, NarrowToFloat(d, v));
  } else if constexpr (std::is_same_v<Format, Float32>) {
    return v;
  } else if constexpr (kIsBFloat16<Format> && !kDoubleLanes<D>) {
    return hn::BitCast(d, hn::And(RoundUpperHalf(format, d, v), hn::Set(hn::RebindToUnsigned<D>(), 0xffff0000u)));
  } else {
    return RoundToGrid(format, d, v);
  }
}

// WidenElements and NarrowElements: 16-bit elements <-> float lanes.
template <class Format, class D32, class VU16 = hn::Vec<hn::Rebind<uint16_t, D32>>>
HWY_INLINE hn::Vec<D32> WidenElements(Format format, D32 d, VU16 elements) {
  if constexpr (kNative<Format>) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D32>(), elements));
  } else {
    return WidenLow(format, d, hn::PromoteTo(hn::RebindToUnsigned<D32>(), elements));
  }
}

template <class Format, class D32>
HWY_INLINE hn::Vec<hn::Rebind<uint16_t, D32>> NarrowElements(Format format, D32 d, hn::Vec<D32> v) {
  const hn::Rebind<uint16_t, D32> d16;
  if constexpr (kNative<Format>) {
    return hn::BitCast(d16, hn::DemoteTo(hn::Rebind<hwy::float16_t, D32>(), v));
  } else {
    return hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<D32>(), NarrowLow(format, d, v)));
  }
}

// Loads elements into lanes (exact). No alignment needed.
template <class Format, class D>
HWY_INLINE hn::Vec<D> LoadLanes(Format format, D d, const std::byte* from) {
  if constexpr (sizeof(typename Format::Bits) == sizeof(hn::TFromD<D>)) {
    return LoadBytes(d, from);
  } else if constexpr (kDoubleLanes<D>) {
    return hn::PromoteTo(d, LoadLanes(format, hn::Rebind<float, D>(), from));
  } else {
    return WidenElements(format, d, LoadBytes(hn::Rebind<uint16_t, D>(), from));
  }
}

// Stores lanes as elements, rounded once. No alignment needed.
template <class Format, class D>
HWY_INLINE void StoreLanes(Format format, hn::Vec<D> v, D d, std::byte* to) {
  if constexpr (sizeof(typename Format::Bits) == sizeof(hn::TFromD<D>)) {
    StoreBytes(v, d, to);
  } else if constexpr (kDoubleLanes<D>) {
    StoreLanes(format, NarrowDoubles(format, d, v), hn::Rebind<float, D>(), to);
  } else {
    StoreBytes(NarrowElements(format, d, v), hn::Rebind<uint16_t, D>(), to);
  }
}

// Stores a whole register. kStream bypasses the caches and requires `to` to be aligned to the register's size.
template <bool kStream, class D>
HWY_INLINE void StoreRegister(hn::Vec<D> v, D d, std::byte* to) {
  if constexpr (kStream) {
    hn::Stream(v, d, reinterpret_cast<hn::TFromD<D>*>(to));
  } else {
    StoreBytes(v, d, to);
  }
}

// Prefetch distance in bytes for work that is limited by memory bandwidth.
constexpr size_t kFarAhead = 4096;

// Prefetches `bytes` bytes from `now` + `distance` on. Addresses beyond the end of the memory are harmless.
HWY_INLINE void Prefetch(const std::byte* now, size_t distance, size_t bytes) {
  constexpr size_t kLine = 64;
  const auto ahead = reinterpret_cast<uintptr_t>(now) + distance;
  for (size_t i = 0; i < bytes; i += kLine) hwy::Prefetch(reinterpret_cast<const std::byte*>(ahead + i));
}

// Stores two whole registers of float lanes as consecutive elements, rounded once.
template <bool kStream, class Format, class D32>
HWY_INLINE void StoreTwo(Format format, hn::Vec<D32> lower, hn::Vec<D32> upper, D32 d, std::byte* to) {
  if constexpr (sizeof(typename Format::Bits) == sizeof(float)) {
    StoreRegister<kStream>(lower, d, to);
    StoreRegister<kStream>(upper, d, to + hn::Lanes(d) * sizeof(float));
  } else {
#if HWY_TARGET == HWY_SCALAR
    StoreLanes(format, lower, d, to);
    StoreLanes(format, upper, d, to + sizeof(typename Format::Bits));
#else
    const hn::Repartition<uint16_t, D32> d16;
    if constexpr (kIsBFloat16<Format>) {
      const auto low = hn::BitCast(d16, RoundUpperHalf(format, d, lower));
      const auto high = hn::BitCast(d16, RoundUpperHalf(format, d, upper));
      StoreRegister<kStream>(hn::ConcatOdd(d16, high, low), d16, to);
    } else {
      StoreRegister<kStream>(hn::Combine(d16, NarrowElements(format, d, upper), NarrowElements(format, d, lower)), d16,
                             to);
    }
#endif
  }
}

// Transposes two vectors of one or two lanes: (a0 a1) (b0 b1) -> (a0 b0) (a1 b1). It is its own inverse.
template <class D>
HWY_INLINE void Zip([[maybe_unused]] D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D>& lower, hn::Vec<D>& upper) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    lower = a;
    upper = b;
  }
#if HWY_TARGET != HWY_SCALAR  // HWY_SCALAR has no interleaving
  else {
    static_assert(hn::MaxLanes(D()) == 2);
    lower = hn::InterleaveLower(d, a, b);
    upper = hn::InterleaveUpper(d, a, b);
  }
#endif
}

// Loads 2 * Lanes(d) elements: 0, 2, 4 ... -> even and 1, 3, 5 ... -> odd. Two 16-bit elements are one lane.
template <class Format, class D>
HWY_INLINE void LoadPairs(Format format, D d, const std::byte* from, hn::Vec<D>& even, hn::Vec<D>& odd) {
  if constexpr (kDoubleLanes<D>) {
    const hn::Rebind<float, D> d32;
    hn::Vec<hn::Rebind<float, D>> even32, odd32;
    LoadPairs(format, d32, from, even32, odd32);
    even = hn::PromoteTo(d, even32);
    odd = hn::PromoteTo(d, odd32);
  } else if constexpr (kNative<Format>) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::RebindToSigned<D> di;
    const auto pairs = LoadBytes(hn::RebindToUnsigned<D>(), from);
    const auto low = hn::And(pairs, hn::Set(hn::RebindToUnsigned<D>(), 0xffffu));
    even = WidenElements(format, d, hn::DemoteTo(d16, hn::BitCast(di, low)));
    odd = WidenElements(format, d, hn::DemoteTo(d16, hn::BitCast(di, hn::ShiftRight<16>(pairs))));
  } else if constexpr (sizeof(typename Format::Bits) == 2) {
    const auto pairs = LoadBytes(hn::RebindToUnsigned<D>(), from);
    even = WidenLow(format, d, pairs);
    if constexpr (kIsBFloat16<Format>) {
      odd = hn::BitCast(d, hn::And(pairs, hn::Set(hn::RebindToUnsigned<D>(), 0xffff0000u)));
    } else {
      odd = WidenLow(format, d, hn::ShiftRight<16>(pairs));
    }
  } else if constexpr (kShortVector<D>) {
    const auto first = LoadBytes(d, from);
    const auto second = LoadBytes(d, from + hn::MaxLanes(D()) * sizeof(float));
    Zip(d, first, second, even, odd);
  } else {
    hn::LoadInterleaved2(d, reinterpret_cast<const float*>(from), even, odd);
  }
}

// Rounds two floats to BFloat16 like RoundUpperHalf, into the low (even) and high (odd) half of a lane, both at once.
#if HWY_TARGET != HWY_SCALAR  // HWY_SCALAR's lanes have no halves
template <class D32>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D32>> RoundPairs(D32, hn::Vec<D32> even, hn::Vec<D32> odd) {
  const hn::RebindToUnsigned<D32> du;
  const hn::Repartition<uint16_t, D32> d16;
  const auto e = hn::BitCast(du, even), o = hn::BitCast(du, odd);
  const auto kept = hn::OrAnd(hn::ShiftRight<16>(e), o, hn::Set(du, 0xffff0000u));
  const auto cut = hn::OrAnd(hn::ShiftLeft<16>(o), e, hn::Set(du, 0x0000ffffu));
  const auto sticky = hn::BitCast(d16, hn::OrAnd(cut, kept, hn::Set(du, 0x00010001u)));
  const auto kept16 = hn::BitCast(d16, kept);
  const auto up = hn::Gt(sticky, hn::Set(d16, uint16_t{0x8000}));
  return hn::BitCast(du, hn::IfThenElse(up, hn::Add(kept16, hn::Set(d16, uint16_t{1})), kept16));
}
#endif

template <bool kStream = false, class Format, class D>
HWY_INLINE void StorePairs(Format format, hn::Vec<D> even, hn::Vec<D> odd, D d, std::byte* to) {
  static_assert(!kStream || (kIsBFloat16<Format> && !kDoubleLanes<D>), "only there a lane is a pair");
  if constexpr (kDoubleLanes<D>) {
    const hn::Rebind<float, D> d32;
    StorePairs(format, NarrowDoubles(format, d, even), NarrowDoubles(format, d, odd), d32, to);
  } else if constexpr (kNative<Format>) {
    const hn::RebindToUnsigned<D> du;
    const auto low = hn::PromoteTo(du, NarrowElements(format, d, even));
    const auto high = hn::PromoteTo(du, NarrowElements(format, d, odd));
    StoreBytes(hn::Or(low, hn::ShiftLeft<16>(high)), du, to);
  } else if constexpr (kIsBFloat16<Format>) {
    const hn::RebindToUnsigned<D> du;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (std::is_same_v<Format, BFloat16Arithmetic> && hn::MaxLanes(D()) >= 4) {
      StoreRegister<kStream>(RoundPairs(d, even, odd), du, to);
      return;
    }
#endif
    const auto pairs = hn::OrAnd(NarrowLow(format, d, even), RoundUpperHalf(format, d, odd), hn::Set(du, 0xffff0000u));
    StoreRegister<kStream>(pairs, du, to);
  } else if constexpr (sizeof(typename Format::Bits) == 2) {
    const auto high = hn::ShiftLeft<16>(NarrowLow(format, d, odd));
    StoreBytes(hn::Or(NarrowLow(format, d, even), high), hn::RebindToUnsigned<D>(), to);
  } else if constexpr (kShortVector<D>) {
    hn::Vec<D> first, second;
    Zip(d, even, odd, first, second);
    StoreBytes(first, d, to);
    StoreBytes(second, d, to + hn::MaxLanes(D()) * sizeof(float));
  } else {
    hn::StoreInterleaved2(even, odd, d, reinterpret_cast<float*>(to));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#endif  // POSENC_KERNELS_CONVERT_INL_H_
