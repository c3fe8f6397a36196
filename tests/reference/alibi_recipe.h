// Reference: ALiBi's slopes by the models' own chains of operations, and by the formula.
//
// T is the tensors' number, P is Python's, as in rope_recipe.h.
#pragma once

#include <cmath>
#include <vector>

#include "tests/reference/mpfr_number.h"

namespace posenc::reference {

// BLOOM and Falcon: powers of a base that is first rounded to the tensor's type. If the number of heads is no power of
// two: the slopes of the largest power of two c < heads, then every other one of 2c.
template <class T, class P>
std::vector<T> BloomSlopes(int heads, double bias_max) {
  const int c = 1 << static_cast<int>(std::floor(std::log2(heads)));
  const T base(Pow(P(2), P(0) - P(bias_max) / P(c))), extra_base(Pow(P(2), P(0) - P(bias_max) / P(2 * c)));
  std::vector<T> slopes;
  for (int n = 1; n <= c; ++n) slopes.push_back(Pow(base, T(n)));
  for (int n = 1; static_cast<int>(slopes.size()) < heads; n += 2) slopes.push_back(Pow(extra_base, T(n)));
  return slopes;
}

// MPT: 1 / 2^(n * (bias_max / c)) for the smallest power of two c >= heads; even n before odd n unless heads = c.
template <class T, class P>
std::vector<T> MptSlopes(int heads, double bias_max) {
  const int c = 1 << static_cast<int>(std::ceil(std::log2(heads)));
  const T step(P(bias_max) / P(c));
  std::vector<T> all, slopes;
  for (int n = 1; n <= c; ++n) all.push_back(T(1) / Pow(T(2), T(n) * step));
  if (heads == c) return all;
  for (int n = 1; n < c; n += 2) slopes.push_back(all[n]);
  for (int n = 0; n < c; n += 2) slopes.push_back(all[n]);
  slopes.resize(heads);
  return slopes;
}

// The paper's text: 2^(-bias_max (h+1) / heads) for any number of heads.
template <class T>
std::vector<T> GeometricSlopes(int heads, double bias_max) {
  std::vector<T> slopes;
  for (int h = 0; h < heads; ++h) slopes.push_back(Pow(T(2), T(0) - T(bias_max) * T(h + 1) / T(heads)));
  return slopes;
}

}  // namespace posenc::reference
