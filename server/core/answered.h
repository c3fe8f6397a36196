// Set of a tensor's byte ranges that have been answered, added in any order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace posenc::server {

class Answered {
 public:
  // Maximum number of disjoint ranges kept, in 4 KiB that are charged to no account. Above it the range with the
  // highest offset is dropped, as if it had not been answered.
  static constexpr size_t kMostRanges = 64;

  // Adds the bytes [begin, end). Ranges may overlap.
  void Add(int64_t begin, int64_t end) {
    auto next = ranges_.upper_bound(begin);
    if (next != ranges_.begin()) {
      const auto before = std::prev(next);
      if (before->second >= begin) {
        begin = before->first;
        end = std::max(end, before->second);
        ranges_.erase(before);
      }
    }
    while (next != ranges_.end() && next->first <= end) {
      end = std::max(end, next->second);
      next = ranges_.erase(next);
    }
    ranges_.emplace(begin, end);
    if (ranges_.size() > kMostRanges) ranges_.erase(std::prev(ranges_.end()));
  }

  int64_t FirstMissing() const { return ranges_.empty() || ranges_.begin()->first > 0 ? 0 : ranges_.begin()->second; }

 private:
  std::map<int64_t, int64_t> ranges_;  // begin to end; disjoint and sorted
};

}  // namespace posenc::server
