// Distances in units of the last place.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace posenc::reference {

// The number of representable numbers between two numbers of a type, one end included; -0 and +0 count as one.
inline double Ulps(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::infinity();
  const auto order = [](float x) {
    const int64_t magnitude = std::bit_cast<uint32_t>(x) & 0x7fffffff;
    return std::signbit(x) ? -magnitude : magnitude;
  };
  return static_cast<double>(std::llabs(order(a) - order(b)));
}

inline double Ulps(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::infinity();
  const auto order = [](double x) {
    const auto magnitude = static_cast<int64_t>(std::bit_cast<uint64_t>(x) & ~(uint64_t{1} << 63));
    return std::signbit(x) ? -magnitude : magnitude;
  };
  // Integers, because a double cannot represent these numbers.
  const int64_t first = order(a), second = order(b);
  return static_cast<double>(static_cast<uint64_t>(std::max(first, second)) -
                             static_cast<uint64_t>(std::min(first, second)));
}

inline double Float32Ulps(double a, double b) { return Ulps(static_cast<float>(a), static_cast<float>(b)); }

}  // namespace posenc::reference
