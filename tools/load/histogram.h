// Counts of values by size, to three significant digits, in the buckets of HdrHistogram (lowest discernible value 1,
// three significant figures), whose files hold the same. Values are microseconds here, but nothing depends on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"

namespace posenc::load {

// Takes memory for the distinct values recorded, to three digits, and not for their range: some 20 bytes each, at most
// 460 KiB. Not for several threads.
class Histogram {
 public:
  static constexpr int64_t kHighest = 3'600'000'000;  // an hour

  // A value below 0 counts as 0, one above kHighest as that. Adds nothing where `count` is not positive.
  void Record(int64_t value, int64_t count = 1);
  void Merge(const Histogram& other);

  int64_t Count() const { return count_; }
  // The greatest value that counts as the same as the one which `percentile` (0..100) of the values do not exceed. All
  // of these are 0 where nothing was recorded.
  int64_t Percentile(double percentile) const;
  // The greatest value that counts as the same as the greatest recorded; the least for Min.
  int64_t Max() const;
  int64_t Min() const;
  // Each value taken as the middle of those that count as the same.
  double Mean() const;
  double StandardDeviation() const;

  // Where a value counts, and the least and greatest values that count there.
  static int32_t Index(int64_t value);
  static int64_t Lowest(int32_t index);
  static int64_t Highest(int32_t index);

  // By index, those above 0, ascending.
  const absl::btree_map<int32_t, int64_t>& counts() const { return counts_; }

  friend bool operator==(const Histogram&, const Histogram&) = default;

 private:
  absl::btree_map<int32_t, int64_t> counts_;
  int64_t count_ = 0;
};

// HdrHistogram's format V2, compressed, in base64: exact. Logs of histograms hold such texts, one a line.
std::string ToV2(const Histogram& histogram);
// INVALID_ARGUMENT if that is no such text, or of a histogram of another resolution than Histogram's, or of doubles.
absl::StatusOr<Histogram> FromV2(std::string_view text);

}  // namespace posenc::load
