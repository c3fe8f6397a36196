// Values of one head of a bias by distance.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "posenc/diagnose/bias_structure.h"

namespace posenc::diagnose {

// The structure, which must outlive it, follows the distance.
class ByDistance {
 public:
  ByDistance(const BiasStructure& structure, size_t head)
      : values_(structure.values[head]), first_(structure.first_distance) {}

  int64_t first() const { return first_; }
  int64_t last() const { return first_ + static_cast<int64_t>(values_.size()) - 1; }
  // NaN where there is none.
  double At(int64_t distance) const {
    const int64_t n = distance - first_;
    if (n < 0 || n >= static_cast<int64_t>(values_.size())) return std::numeric_limits<double>::quiet_NaN();
    return values_[n];
  }
  // Where sign * value is greatest; of equals the first.
  int64_t Peak(double sign) const {
    int64_t peak = first_;
    for (int64_t d = first_; d <= last(); ++d) {
      if (!std::isnan(At(d)) && !(sign * At(d) <= sign * At(peak))) peak = d;
    }
    return peak;
  }
  // Where a line through the values farthest apart is 0; NaN if it has no slope.
  double Zero() const {
    int64_t low = first_, high = last();
    while (low < high && std::isnan(At(low))) ++low;
    while (low < high && std::isnan(At(high))) --high;
    const double rise = At(high) - At(low);
    return rise == 0 || low == high ? std::numeric_limits<double>::quiet_NaN()
                                    : static_cast<double>(low) - At(low) / rise * static_cast<double>(high - low);
  }

 private:
  const std::vector<double>& values_;
  const int64_t first_;
};

}  // namespace posenc::diagnose
