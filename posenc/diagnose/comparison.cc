#include "posenc/diagnose/comparison.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "posenc/kernels/convert.h"

namespace posenc::diagnose {
namespace {

// Maps values to integers in the same order; both zeros are 0.
template <class Bits>
int64_t Rank(Bits bits) {
  using Signed = std::make_signed_t<Bits>;
  const auto magnitude = static_cast<int64_t>(bits & std::numeric_limits<Signed>::max());
  return static_cast<Signed>(bits) < 0 ? -magnitude : magnitude;
}

template <class Format>
constexpr auto kInfinity = static_cast<typename Format::Bits>(
    (std::numeric_limits<std::make_signed_t<typename Format::Bits>>::max() >> Format::kMantissaBits)
    << Format::kMantissaBits);

template <class Format>
bool IsNan(typename Format::Bits bits) {
  return (bits & std::numeric_limits<std::make_signed_t<typename Format::Bits>>::max()) > kInfinity<Format>;
}

template <class Format>
bool AreFinite(const std::byte* elements, size_t count) {
  bool special = false;
  for (size_t n = 0; n < count; ++n) {
    typename Format::Bits bits;
    std::memcpy(&bits, elements + n * sizeof(bits), sizeof(bits));
    special |= (bits & kInfinity<Format>) == kInfinity<Format>;
  }
  return !special;
}

template <class Format>
uint64_t Distance(typename Format::Bits a, typename Format::Bits b) {
  const bool nan_a = IsNan<Format>(a), nan_b = IsNan<Format>(b);
  if (nan_a || nan_b) return nan_a && nan_b ? 0 : std::numeric_limits<uint64_t>::max();
  const int64_t rank_a = Rank(a), rank_b = Rank(b);
  return rank_a > rank_b ? static_cast<uint64_t>(rank_a) - static_cast<uint64_t>(rank_b)
                         : static_cast<uint64_t>(rank_b) - static_cast<uint64_t>(rank_a);
}

// Calls visit(n, distance, is_nan) for the elements whose bits differ.
template <class Format, class Visitor>
void VisitDifferences(const std::byte* ours, const std::byte* theirs, size_t count, const Visitor& visit) {
  using Bits = typename Format::Bits;
  constexpr size_t kRun = 64;
  for (size_t begin = 0; begin < count; begin += kRun) {
    const size_t end = std::min(count, begin + kRun);
    if (std::memcmp(ours + begin * sizeof(Bits), theirs + begin * sizeof(Bits), (end - begin) * sizeof(Bits)) == 0) {
      continue;
    }
    for (size_t n = begin; n < end; ++n) {
      Bits a, b;
      std::memcpy(&a, ours + n * sizeof(Bits), sizeof(Bits));
      std::memcpy(&b, theirs + n * sizeof(Bits), sizeof(Bits));
      if (a != b) visit(n, Distance<Format>(a, b), IsNan<Format>(a));
    }
  }
}

template <class Visitor>
void VisitDifferences(DType dtype, const std::byte* ours, const std::byte* theirs, size_t count, const Visitor& visit) {
  switch (dtype) {
    case DType::kFP64: return VisitDifferences<Float64>(ours, theirs, count, visit);
    case DType::kFP32: return VisitDifferences<Float32>(ours, theirs, count, visit);
    case DType::kFP16: return VisitDifferences<Float16>(ours, theirs, count, visit);
    default: return VisitDifferences<BFloat16>(ours, theirs, count, visit);
  }
}

}  // namespace

size_t Comparison::BucketOf(uint64_t distance) {
  if (distance < kExact) return distance;
  const int shift = std::bit_width(distance) - 7;  // >= 1; distance >> shift is 64 .. 127
  return kExact + static_cast<size_t>(shift - 1) * 64 + ((distance >> shift) - 64);
}

uint64_t Comparison::Lowest(size_t bucket) {
  if (bucket < kExact) return bucket;
  const size_t shift = (bucket - kExact) / 64 + 1;
  return ((bucket - kExact) % 64 + 64) << shift;
}

size_t Comparison::Add(DType dtype, const std::byte* ours, const std::byte* theirs, size_t count) {
  size_t first = count;
  uint64_t differ = 0;
  const auto visit = [&](size_t n, uint64_t distance, bool nan) {
    if (distance == 0 && nan) return;  // two NaNs
    undefined_ += nan;
    first = std::min(first, n);
    ++differ;
    worst_ = std::max(worst_, distance);
    ++counts_[BucketOf(distance)];
  };
  VisitDifferences(dtype, ours, theirs, count, visit);
  elements_ += count;
  equal_ += count - differ;
  counts_[0] += count - differ;
  return first;
}

void Comparison::Merge(const Comparison& other) {
  elements_ += other.elements_;
  equal_ += other.equal_;
  worst_ = std::max(worst_, other.worst_);
  undefined_ += other.undefined_;
  for (size_t n = 0; n < kBuckets; ++n) counts_[n] += other.counts_[n];
}

uint64_t Comparison::median() const {
  uint64_t below = 0;
  for (size_t n = 0; n < kBuckets; ++n) {
    below += counts_[n];
    if (2 * below >= elements_ && below > 0) return Lowest(n);
  }
  return 0;
}

double Comparison::mean_log() const {
  double sum = 0;
  for (size_t n = 1; n < kBuckets; ++n) {
    const uint64_t count = n + 1 < kBuckets ? counts_[n] : counts_[n] - undefined_;
    if (count != 0) sum += static_cast<double>(count) * std::log2(1 + static_cast<double>(Lowest(n)));
  }
  return elements_ == 0 ? 0 : sum / static_cast<double>(elements_);
}

uint64_t UlpDistance(DType dtype, const std::byte* a, const std::byte* b) {
  uint64_t found = 0;
  VisitDifferences(dtype, a, b, 1, [&found](size_t, uint64_t distance, bool) { found = distance; });
  return found;
}

bool AreFinite(DType dtype, const std::byte* elements, size_t count) {
  switch (dtype) {
    case DType::kFP64: return AreFinite<Float64>(elements, count);
    case DType::kFP32: return AreFinite<Float32>(elements, count);
    case DType::kFP16: return AreFinite<Float16>(elements, count);
    default: return AreFinite<BFloat16>(elements, count);
  }
}

double ValueOf(DType dtype, const std::byte* element) {
  double value = 0;
  Convert(dtype, DType::kFP64, element, &value, 1);
  return value;
}

}  // namespace posenc::diagnose
