// Logarithmic distance buckets, as T5 and DeBERTa use them.
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
  bool log_of_tensor = false;  // the model's own code computes ln(max / exact) on a tensor
};

// Returns the thresholds of k = 1 .. count that are at most `largest`. Under kExact every threshold is exact: integer
// arithmetic decides ties.
std::vector<int64_t> Thresholds(Frequencies arithmetic, const LogBuckets& buckets, int64_t count, int64_t largest);

}  // namespace posenc
