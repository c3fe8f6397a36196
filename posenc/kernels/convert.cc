#include "posenc/kernels/convert.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/convert.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "posenc/kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {

template <class From, class To, class D>
HWY_INLINE size_t ConvertWhole(D d, const std::byte* src, std::byte* dst, size_t begin, size_t count) {
  size_t i = begin;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto lanes = LoadLanes(From(), d, src + i * sizeof(typename From::Bits));
    StoreLanes(To(), lanes, d, dst + i * sizeof(typename To::Bits));
  }
  return i;
}

template <class From, class To>
void ConvertElements(const std::byte* src, std::byte* dst, size_t count) {
  constexpr bool kDouble = std::is_same_v<From, Float64> || std::is_same_v<To, Float64>;
  using Lane = std::conditional_t<kDouble, double, float>;
  const size_t converted = ConvertWhole<From, To>(hn::ScalableTag<Lane>(), src, dst, 0, count);
  ConvertWhole<From, To>(hn::CappedTag<Lane, 1>(), src, dst, converted, count);
}

template <class From>
void ConvertFrom(DType to, const std::byte* src, std::byte* dst, size_t count) {
  switch (to) {
    case DType::kFP64: return ConvertElements<From, Float64>(src, dst, count);
    case DType::kFP32: return ConvertElements<From, Float32>(src, dst, count);
    case DType::kFP16: return ConvertElements<From, Float16>(src, dst, count);
    case DType::kBF16: return ConvertElements<From, BFloat16>(src, dst, count);
    default: HWY_ABORT("Convert: not a floating-point type");
  }
}

void ConvertArray(DType from, DType to, const std::byte* src, std::byte* dst, size_t count) {
  switch (from) {
    case DType::kFP64: return ConvertFrom<Float64>(to, src, dst, count);
    case DType::kFP32: return ConvertFrom<Float32>(to, src, dst, count);
    case DType::kFP16: return ConvertFrom<Float16>(to, src, dst, count);
    case DType::kBF16: return ConvertFrom<BFloat16>(to, src, dst, count);
    default: HWY_ABORT("Convert: not a floating-point type");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {

HWY_EXPORT(ConvertArray);

void Convert(DType from, DType to, const void* src, void* dst, size_t count) {
  if (from == to) {
    if (src != dst && count != 0) std::memcpy(dst, src, count * SizeOf(from));
    return;
  }
  HWY_DYNAMIC_DISPATCH(ConvertArray)
  (from, to, static_cast<const std::byte*>(src), static_cast<std::byte*>(dst), count);
}

void RoundTo(DType dtype, float* values, size_t count) {
  constexpr size_t kTogether = 4096;
  uint16_t narrow[kTogether];
  if (dtype == DType::kFP32) return;
  for (size_t begin = 0; begin < count; begin += kTogether) {
    const size_t some = std::min(kTogether, count - begin);
    Convert(DType::kFP32, dtype, values + begin, narrow, some);
    Convert(dtype, DType::kFP32, narrow, values + begin, some);
  }
}

}  // namespace posenc
#endif  // HWY_ONCE
