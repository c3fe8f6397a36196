// Histogram with the buckets of HdrHistogram (lowest discernible value 1, three significant digits), compatible with
// its files. Values are microseconds here, but nothing depends on the unit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"

namespace posenc::load {

// Memory grows with the number of distinct values (to three digits), not with their range: about 20 bytes each, at most
// 460 KiB. Not thread-safe.
class Histogram {
 public:
  static constexpr int64_t kHighest = 3'600'000'000;  // one hour in microseconds

  // Counts values below 0 as 0, values above kHighest as kHighest. Does nothing if `count` is not positive.
  void Record(int64_t value, int64_t count = 1);
  void Merge(const Histogram& other);

  int64_t Count() const { return count_; }
  // Greatest value of the bucket that holds the percentile (0..100); for 0, the least value of the first bucket. All of
  // these functions return 0 if nothing was recorded.
  int64_t Percentile(double percentile) const;
  // Number of values in buckets above the one that holds `value`.
  int64_t CountAbove(int64_t value) const;
  // Greatest value of the last bucket used; least value of the first one for Min.
  int64_t Max() const;
  int64_t Min() const;
  // Computed from the middle of each value's bucket.
  double Mean() const;
  double StandardDeviation() const;

  // Bucket index of a value, and the least and greatest values of a bucket.
  static int32_t Index(int64_t value);
  static int64_t Lowest(int32_t index);
  static int64_t Highest(int32_t index);

  // Counts above 0 by bucket index, ascending.
  const absl::btree_map<int32_t, int64_t>& counts() const { return counts_; }

  friend bool operator==(const Histogram&, const Histogram&) = default;

 private:
  absl::btree_map<int32_t, int64_t> counts_;
  int64_t count_ = 0;
};

// Lossless text in HdrHistogram's format V2: compressed, base64. Histogram logs hold one such text per line.
std::string ToV2(const Histogram& histogram);
// Returns INVALID_ARGUMENT if the text is malformed, has another resolution than Histogram's, or holds doubles.
absl::StatusOr<Histogram> FromV2(std::string_view text);

}  // namespace posenc::load
