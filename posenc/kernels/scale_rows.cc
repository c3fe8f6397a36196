#include "posenc/kernels/scale_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "posenc/kernels/scale_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "posenc/kernels/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc {
namespace HWY_NAMESPACE {

// Multiplies elements from `begin` on while they fill a vector. Returns the first element left.
template <class Format, class D>
HWY_INLINE size_t ScaleElements(Format format, D d, std::byte* y, size_t begin, size_t elements, float factor) {
  const auto by = hn::Set(d, factor);
  for (; begin + hn::Lanes(d) <= elements; begin += hn::Lanes(d)) {
    std::byte* const at = y + begin * sizeof(typename Format::Bits);
    StoreLanes(format, hn::Mul(LoadLanes(format, d, at), by), d, at);
  }
  return begin;
}

template <class Format>
void ScaleRowsOf(Format format, const RowScaling& work) {
  for (size_t token = 0; token < work.tokens; ++token) {
    const float factor = work.factors[token];
    if (factor == 1) continue;
    std::byte* y = work.y + token * work.token_stride;
    for (size_t head = 0; head < work.heads; ++head, y += work.head_stride) {
      const size_t rest = ScaleElements(format, hn::ScalableTag<float>(), y, 0, work.elements, factor);
      ScaleElements(format, hn::CappedTag<float, 1>(), y, rest, work.elements, factor);
    }
  }
}

void ScaleAllRows(const RowScaling& work) {
  switch (work.dtype) {
    case DType::kFP32: return ScaleRowsOf(Float32(), work);
    case DType::kFP16: return ScaleRowsOf(Float16(), work);
    case DType::kBF16: return ScaleRowsOf(BFloat16Arithmetic(), work);
    default: HWY_ABORT("RowScaling: elements are neither FP32, FP16 nor BF16");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc {

HWY_EXPORT(ScaleAllRows);

void ScaleRows(const RowScaling& work) { HWY_DYNAMIC_DISPATCH(ScaleAllRows)(work); }

}  // namespace posenc
#endif  // HWY_ONCE
