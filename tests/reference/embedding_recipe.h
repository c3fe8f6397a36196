// Reference: rows of absolute encodings, element by element, from the definitions in embedding.proto.
//
// T is the tensors' number, P is Python's: Number<24> and Number<53>, or Number<53> for both, behave like the
// originals' float32 and float64 if every step is rounded correctly. Real for both is the definition over the real
// numbers, except that a frequency is rounded to float64.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "posenc/base/dtype.h"
#include "tests/reference/mpfr_number.h"
#include "tests/reference/scalar_format.h"

namespace posenc::reference {

using Real = Number<600>;

// Rounds x once to `dtype`. A double that is truncated, with an odd last bit unless exact, is on the same side as x of
// every boundary of a narrower type.
template <int kDigits>
double RoundOnce(DType dtype, const Number<kDigits>& x) {
  if (dtype == DType::kFP64) return x.ToDouble();
  double odd = mpfr_get_d(x.get(), MPFR_RNDZ);
  if (mpfr_cmp_d(x.get(), odd) != 0) odd = std::bit_cast<double>(std::bit_cast<uint64_t>(odd) | 1);
  return Round(dtype, odd);
}

template <class T, class P>
struct EmbeddingRecipe {
  static constexpr bool kReal = std::is_same_v<T, Real>;
  using Row = std::vector<T>;

  static T Frequency(const T& w) {
    if constexpr (kReal) return T(w.template RoundedTo<53>());
    return w;
  }

  // Sines of all angles, then cosines, or cosines first.
  static void AppendSinCos(const Row& angles, bool cosines_first, Row& row) {
    for (bool cosine : {cosines_first, !cosines_first}) {
      for (const T& angle : angles) row.push_back(cosine ? Cos(angle) : Sin(angle));
    }
  }

  static Row Timestep(double t, int dim, double max_period, double shift, double scale, bool flip) {
    const int half = dim / 2;
    Row angles, row;
    for (int k = 0; k < half; ++k) {
      const T w = Exp(T(P(0) - Log(P(max_period))) * T(k) / T(P(half) - P(shift)));
      angles.push_back(kReal ? T(t) * Frequency(T(scale) * w) : T(scale) * (T(t) * w));
    }
    AppendSinCos(angles, flip, row);
    if (dim % 2 == 1) row.push_back(T(0));
    return row;
  }

  // Appends sines and cosines of index * distance; `distance` is base / size / interpolation_scale, which the originals
  // apply to the index, in float32.
  static void AppendAxis(int index, int pairs, int spread, double temperature, double base, double size,
                         double interpolation_scale, Row& row) {
    using F = Number<24>;
    const F shrink(Number<53>(size) / Number<53>(base));
    const F coordinate = F(index) / shrink / F(interpolation_scale);
    Row angles;
    for (int k = 0; k < pairs; ++k) {
      const T w = T(1) / Pow(T(temperature), T(k) / T(spread));
      const T distance = T(base) / T(size) / T(interpolation_scale);
      angles.push_back(kReal ? T(index) * Frequency(distance * w) : T(coordinate) * w);
    }
    AppendSinCos(angles, false, row);
  }

  // AppendAxis for DETR: sines and cosines alternate.
  static void AppendDetrAxis(int index, int pairs, int size, double temperature, bool normalize, double scale,
                             double offset, Row& row) {
    const T norm = T(size) + T(1e-6);
    for (int k = 0; k < pairs; ++k) {
      const T period = Pow(T(temperature), T(2 * k) / T(2 * pairs));
      T angle(0);
      if (kReal) {
        const T w = Frequency(normalize ? T(scale) / norm / period : T(1) / period);
        angle = T(normalize ? index + 1 + offset : index + 1) * w;
      } else {
        T at(index + 1);
        if (normalize) at = (at + T(offset)) / norm * T(scale);
        angle = at / period;
      }
      row.push_back(Sin(angle));
      row.push_back(Cos(angle));
    }
  }

  // sin 2 pi turns; exact at multiples of a quarter turn.
  static T SinTurns(const T& turns) {
    const T rest = turns - Floor(turns);
    for (int quarter = 0; quarter < 4; ++quarter) {
      if (rest == T(0.25 * quarter)) return T(quarter % 2 == 0 ? 0 : 2 - quarter);
    }
    return Sin(T(2) * T::Pi() * rest);
  }

  // Sines of 2 pi B x, then cosines.
  static Row Fourier(const std::vector<double>& x, const std::vector<std::vector<double>>& b) {
    const T two_pi(P(2) * P::Pi());
    Row row;
    for (bool cosine : {false, true}) {
      for (const std::vector<double>& of_row : b) {
        T sum(0);
        for (size_t j = 0; j < x.size(); ++j) {
          const T term = (kReal ? T(x[j]) : two_pi * T(x[j])) * T(of_row[j]);
          sum = j == 0 ? term : sum + term;
        }
        if constexpr (kReal) {
          row.push_back(SinTurns(cosine ? sum + T(0.25) : sum));
        } else {
          row.push_back(cosine ? Cos(sum) : Sin(sum));
        }
      }
    }
    return row;
  }
};

}  // namespace posenc::reference
