// Which bytes of a tensor have been answered, by ranges in any order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace posenc::server {

class Answered {
 public:
  // Ranges may overlap. What lies beyond gaps is remembered of so many ranges only; the furthest is forgotten first, as
  // if it had not been answered.
  static constexpr size_t kMostRanges = 1024;

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
  std::map<int64_t, int64_t> ranges_;  // end by begin: apart, and in order
};

}  // namespace posenc::server
