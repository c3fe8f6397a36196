// Reference: the formulas of biases, from their papers, one value at a time. T is a number as in mpfr_number.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "tests/reference/mpfr_number.h"

namespace posenc::reference {

// T5's bucket of the distance key - query. Logarithms use T, and P for what Python computes outside tensors.
template <class T, class P>
int64_t T5Bucket(int64_t distance, int64_t buckets, int64_t max_distance, bool bidirectional) {
  int64_t bucket = 0;
  if (bidirectional) {
    buckets /= 2;
    if (distance > 0) bucket = buckets;
  }
  const int64_t n = bidirectional ? std::abs(distance) : distance < 0 ? -distance : 0;
  const int64_t exact = buckets / 2;
  if (n < exact) return bucket + n;
  const auto number = [](int64_t x) { return static_cast<double>(x); };
  const T log = Log(T(number(n)) / T(number(exact))) / T(Log(P(number(max_distance)) / P(number(exact))));
  const auto beyond = static_cast<int64_t>((log * T(number(buckets - exact))).ToDouble());
  return bucket + std::min(buckets - 1, exact + beyond);
}

// T5Bucket over the integers: beyond is the largest k with n^s exact^k >= max^k exact^s, s = the number of shared
// buckets.
inline int64_t T5BucketOfIntegers(int64_t distance, int64_t buckets, int64_t max_distance, bool bidirectional) {
  using Integer = Number<8192>;
  int64_t bucket = 0;
  if (bidirectional) {
    buckets /= 2;
    if (distance > 0) bucket = buckets;
  }
  const int64_t n = bidirectional ? std::abs(distance) : distance < 0 ? -distance : 0;
  const int64_t exact = buckets / 2, shared = buckets - exact;
  if (n < exact) return bucket + n;
  const auto power = [](int64_t base, int64_t exponent) {
    Integer product(1);
    for (int64_t k = 0; k < exponent; ++k) product = product * Integer(static_cast<double>(base));
    return product;
  };
  int64_t beyond = 0;
  while (beyond < shared - 1 &&
         !(power(n, shared) * power(exact, beyond + 1) < power(max_distance, beyond + 1) * power(exact, shared))) {
    ++beyond;
  }
  return bucket + exact + beyond;
}

// FIRE: the input of its network for a query at i and a key at j.
template <class T>
T FireInput(double c, double threshold, double epsilon, int64_t i, int64_t j) {
  const auto psi = [&](double n) { return Log(T(c < 0 ? -c : c) * T(n) + T(1)); };
  const auto position = static_cast<double>(i);
  return psi(static_cast<double>(std::abs(i - j))) / (psi(position < threshold ? threshold : position) + T(epsilon));
}

template <class T>
T KerpleLog(double a, double p, int64_t distance) {
  return T(0) - T(p) * Log(T(1) + T(a) * T(static_cast<double>(std::abs(distance))));
}
template <class T>
T KerplePower(double a, double p, int64_t distance) {
  return T(0) - T(a) * Pow(T(static_cast<double>(std::abs(distance))), T(p));
}

// Sandwich's bias of head h = 1 .. heads.
template <class T, class P>
T Sandwich(bool paper, int64_t dim, double base, int64_t heads, int64_t h, int64_t distance) {
  T sum(0);
  for (int64_t k = 0; k < dim / 2; ++k) {
    const P exponent = P(2.0 * static_cast<double>(paper ? k + 1 : k)) / P(static_cast<double>(dim));
    sum = sum + Cos(T(static_cast<double>(std::abs(distance))) / Pow(T(base), T(exponent)));
  }
  if (paper) sum = sum - T(static_cast<double>(dim) / 2);
  return sum / T(P(8.0 * static_cast<double>(h)) / P(static_cast<double>(heads)));
}

// The row of Swin's table; tokens are numbered row by row.
inline int64_t SwinRow(int64_t height, int64_t width, int64_t query, int64_t key) {
  const int64_t dy = query / width - key / width, dx = query % width - key % width;
  return (dy + height - 1) * (2 * width - 1) + dx + width - 1;
}

// The row of BEiT's table; token 0 is cls.
inline int64_t BeitRow(int64_t height, int64_t width, int64_t query, int64_t key) {
  const int64_t rows = (2 * height - 1) * (2 * width - 1) + 3;
  if (query == 0 && key == 0) return rows - 1;
  if (key == 0) return rows - 2;
  if (query == 0) return rows - 3;
  return SwinRow(height, width, query - 1, key - 1);
}

// Swin v2: a log-spaced coordinate, and the network's output.
template <class T>
T LogCoordinate(int64_t displacement, int64_t size) {
  const T c = T(8) * T(static_cast<double>(std::abs(displacement))) / T(static_cast<double>(size - 1));
  const T spaced = Log2(c + T(1)) / T(3);
  return displacement < 0 ? T(0) - spaced : spaced;
}
template <class T>
T SwinV2(const T& y, const T& x, const std::vector<double>& hidden_weight, const std::vector<double>& hidden_bias,
         const double* output_weight) {
  T sum(0);
  for (size_t n = 0; n < hidden_bias.size(); ++n) {
    const T hidden = T(hidden_weight[2 * n]) * y + T(hidden_weight[2 * n + 1]) * x + T(hidden_bias[n]);
    if (hidden > T(0)) sum = sum + T(output_weight[n]) * hidden;
  }
  return T(16) / (T(1) + Exp(T(0) - sum));
}

}  // namespace posenc::reference
