#include "bench/sweeps.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/sweeps.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::ScalableTag<uint32_t>;

// Calls body(i) with the index of the first word of every vector, unrolled four times.
template <class Body>
HWY_INLINE void ForVectors(size_t bytes, Body body) {
  const size_t lanes = hn::Lanes(Words()), words = bytes / sizeof(uint32_t);
  for (size_t i = 0; i < words; i += 4 * lanes) {
    body(i);
    body(i + lanes);
    body(i + 2 * lanes);
    body(i + 3 * lanes);
  }
}

void StreamCopyWords(uint32_t* to, const uint32_t* from, size_t bytes) {
  ForVectors(bytes, [=](size_t i) HWY_ATTR { hn::Stream(hn::Load(Words(), from + i), Words(), to + i); });
  hwy::FlushStream();
}

void StoreWords(uint32_t* to, size_t bytes) {
  const auto value = hn::Set(Words(), 0x3f800001u);
  ForVectors(bytes, [=](size_t i) HWY_ATTR { hn::Store(value, Words(), to + i); });
}

void StreamStoreWords(uint32_t* to, size_t bytes) {
  const auto value = hn::Set(Words(), 0x3f800001u);
  ForVectors(bytes, [=](size_t i) HWY_ATTR { hn::Stream(value, Words(), to + i); });
  hwy::FlushStream();
}

void ReadModifyWriteWords(uint32_t* data, size_t bytes) {
  const auto one = hn::Set(Words(), 1u);
  ForVectors(bytes,
             [=](size_t i) HWY_ATTR { hn::Store(hn::Xor(hn::Load(Words(), data + i), one), Words(), data + i); });
}

void AddToWords(uint32_t* data, const uint32_t* other, size_t bytes) {
  ForVectors(bytes, [=](size_t i) HWY_ATTR {
    hn::Store(hn::Xor(hn::Load(Words(), data + i), hn::Load(Words(), other + i)), Words(), data + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::bench {
namespace {

uint32_t* Words(std::byte* bytes) { return reinterpret_cast<uint32_t*>(bytes); }
const uint32_t* Words(const std::byte* bytes) { return reinterpret_cast<const uint32_t*>(bytes); }

HWY_EXPORT(StreamCopyWords);
HWY_EXPORT(StoreWords);
HWY_EXPORT(StreamStoreWords);
HWY_EXPORT(ReadModifyWriteWords);
HWY_EXPORT(AddToWords);

}  // namespace

void StreamCopy(std::byte* to, const std::byte* from, size_t bytes) {
  HWY_DYNAMIC_DISPATCH(StreamCopyWords)(Words(to), Words(from), bytes);
}
void Store(std::byte* to, size_t bytes) { HWY_DYNAMIC_DISPATCH(StoreWords)(Words(to), bytes); }
void StreamStore(std::byte* to, size_t bytes) { HWY_DYNAMIC_DISPATCH(StreamStoreWords)(Words(to), bytes); }
void ReadModifyWrite(std::byte* data, size_t bytes) { HWY_DYNAMIC_DISPATCH(ReadModifyWriteWords)(Words(data), bytes); }
void AddTo(std::byte* data, const std::byte* other, size_t bytes) {
  HWY_DYNAMIC_DISPATCH(AddToWords)(Words(data), Words(other), bytes);
}

}  // namespace posenc::bench
#endif  // HWY_ONCE
