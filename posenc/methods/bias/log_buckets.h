// Distances that share a bucket by logarithm, as T5 and DeBERTa have them.
#pragma once

#include <cstdint>
#include <vector>

#include "posenc/base/modes.h"

namespace posenc {

// x(n) = ln(n / exact) / ln(max / exact) * shared, for distances n >= exact >= 1, max > exact.
struct LogBuckets {
  int64_t exact;
  int64_t shared;
  int64_t max;
  bool strict = false;         // a threshold is the least n whose x(n) > k, instead of >= k
  bool log_of_tensor = false;  // whether the model's own code takes ln(max / exact) of a tensor
};

// The thresholds of k = 1 .. count, as far as they are at most `largest`. Under kExact each is decided over the
// integers.
std::vector<int64_t> Thresholds(Frequencies arithmetic, const LogBuckets& buckets, int64_t count, int64_t largest);

}  // namespace posenc
