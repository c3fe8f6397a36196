#include "tools/load/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace posenc::load {
namespace {

// The first 2,048 buckets hold one value each; each further 1,024 buckets cover twice the range of the 1,024 before.
constexpr int kHalfBits = 10;
constexpr int64_t kHalf = int64_t{1} << kHalfBits;

// log2 of the number of values in a bucket.
int Shift(int32_t index) { return std::max(0, (index >> kHalfBits) - 1); }

double Middle(int32_t index) {
  return static_cast<double>(Histogram::Lowest(index) + (int64_t{1} << Shift(index) >> 1));
}

}  // namespace

int32_t Histogram::Index(int64_t value) {
  const int shift = std::bit_width(static_cast<uint64_t>(value) | (2 * kHalf - 1)) - (kHalfBits + 1);
  return static_cast<int32_t>((shift << kHalfBits) + (value >> shift));
}

int64_t Histogram::Lowest(int32_t index) {
  const int shift = Shift(index);
  return shift == 0 ? index : (kHalf + (index & (kHalf - 1))) << shift;
}

int64_t Histogram::Highest(int32_t index) { return Lowest(index) + (int64_t{1} << Shift(index)) - 1; }

void Histogram::Record(int64_t value, int64_t count) {
  if (count <= 0) return;
  counts_[Index(std::clamp<int64_t>(value, 0, kHighest))] += count;
  count_ += count;
}

void Histogram::Merge(const Histogram& other) {
  for (const auto& [index, count] : other.counts_) counts_[index] += count;
  count_ += other.count_;
}

int64_t Histogram::Percentile(double percentile) const {
  if (count_ == 0) return 0;
  // Slightly less than requested, because rounding up might skip a value: 99.9 % of 1,000 is 999.0000000000001 in
  // doubles.
  const double share = std::clamp(std::nextafter(percentile, -1.0), 0.0, 100.0) / 100;
  const int64_t wanted = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share * static_cast<double>(count_))));
  int64_t seen = 0;
  for (const auto& [index, count] : counts_) {
    seen += count;
    if (seen >= wanted) return percentile <= 0 ? Lowest(index) : Highest(index);
  }
  return Max();
}

int64_t Histogram::CountAbove(int64_t value) const {
  int64_t above = 0;
  for (auto bucket = counts_.upper_bound(Index(value)); bucket != counts_.end(); ++bucket) above += bucket->second;
  return above;
}

int64_t Histogram::Max() const { return counts_.empty() ? 0 : Highest(counts_.rbegin()->first); }

int64_t Histogram::Min() const { return counts_.empty() ? 0 : Lowest(counts_.begin()->first); }

double Histogram::Mean() const {
  if (count_ == 0) return 0;
  double sum = 0;
  for (const auto& [index, count] : counts_) sum += static_cast<double>(count) * Middle(index);
  return sum / static_cast<double>(count_);
}

double Histogram::StandardDeviation() const {
  if (count_ == 0) return 0;
  const double mean = Mean();
  double sum = 0;
  for (const auto& [index, count] : counts_) {
    const double difference = Middle(index) - mean;
    sum += static_cast<double>(count) * difference * difference;
  }
  return std::sqrt(sum / static_cast<double>(count_));
}

}  // namespace posenc::load
