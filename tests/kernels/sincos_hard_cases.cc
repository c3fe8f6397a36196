#include "tests/kernels/sincos_hard_cases.h"

#include <mpfr.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

namespace posenc {
namespace {

struct Format {
  int precision;
  int least;  // the smallest positive value is 2^least
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kFP16: return {11, -24};
    case DType::kBF16: return {8, -133};
    case DType::kFP32: return {24, -149};
    default: return {53, -1074};
  }
}

// A boundary is an odd number of half steps of the format: odd * 2^exponent.
struct Boundary {
  int64_t odd;
  int exponent;
};

Boundary RandomBoundary(Format format, int size, std::mt19937_64& random) {  // in [2^size, 2^(size+1))
  const int half_step = std::max(size - format.precision, format.least - 1);
  const int64_t least = int64_t{1} << std::max(size - half_step, 0);
  return {(static_cast<int64_t>(random() % static_cast<uint64_t>(least)) + least) | 1, half_step};
}

double Between(double low, double high, std::mt19937_64& random) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

// The angle 2 pi turns + arccos(y) or arcsin(y) as an unevaluated sum of two doubles.
struct Angle {
  double hi;
  double lo;
};

Angle AngleOf(Boundary y, bool cosine, uint64_t turns) {
  mpfr_t angle, full_turn;
  mpfr_inits2(200, angle, full_turn, static_cast<mpfr_ptr>(nullptr));
  mpfr_set_si_2exp(angle, y.odd, y.exponent, MPFR_RNDN);
  cosine ? mpfr_acos(angle, angle, MPFR_RNDN) : mpfr_asin(angle, angle, MPFR_RNDN);
  mpfr_const_pi(full_turn, MPFR_RNDN);
  mpfr_mul_ui(full_turn, full_turn, 2 * turns, MPFR_RNDN);
  mpfr_add(angle, angle, full_turn, MPFR_RNDN);
  Angle result;
  result.hi = mpfr_get_d(angle, MPFR_RNDN);
  mpfr_sub_d(angle, angle, result.hi, MPFR_RNDN);
  result.lo = mpfr_get_d(angle, MPFR_RNDN);
  mpfr_clears(angle, full_turn, static_cast<mpfr_ptr>(nullptr));
  return result;
}

}  // namespace

std::vector<HardCase> AnglesOfBoundaries(DType dtype, int count, int tries, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<HardCase> cases;
  for (int i = 0; i < count; ++i) {
    const Boundary y = RandomBoundary(FormatOf(dtype), -1 - i % 3, random);  // between 1/8 and 1
    const uint64_t turns = i % 4 == 0 ? random() % 1000 : 0;
    const Angle angle = AngleOf(i % 5 == 0 ? Boundary{-y.odd, y.exponent} : y, i % 2 == 0, turns);
    HardCase nearest{};
    double least_distance = HUGE_VAL;
    for (int j = 0; j < tries; ++j) {
      const double position = static_cast<double>(1 + random() % (uint64_t{1} << 40));
      const double inv_freq = angle.hi / position;
      const double distance = std::abs(std::fma(position, inv_freq, -angle.hi) - angle.lo);
      if (distance < least_distance) {
        least_distance = distance;
        nearest = {position, inv_freq, 1.0};
      }
    }
    cases.push_back(nearest);
  }
  return cases;
}

std::vector<HardCase> AnglesOnBoundaries(DType dtype, int count, int smallest, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<HardCase> cases;
  while (cases.size() < static_cast<size_t>(count)) {
    const int size = -10 - static_cast<int>(random() % static_cast<uint64_t>(-9 - smallest));
    const Boundary boundary = RandomBoundary(FormatOf(dtype), size, random);
    // Split into two factors of about half the bits, so that both are doubles (the product has 54 bits for FP64).
    const double root = std::sqrt(static_cast<double>(boundary.odd));
    const int64_t position = static_cast<int64_t>(Between(root / 2, root, random)) | 1;
    const int64_t factor = (boundary.odd / position) | 1;
    if (std::bit_width(static_cast<uint64_t>(position * factor)) !=
        std::bit_width(static_cast<uint64_t>(boundary.odd))) {
      continue;
    }
    const double sign = random() % 2 == 0 ? 1.0 : -1.0;
    cases.push_back({sign * static_cast<double>(position), std::ldexp(factor, boundary.exponent), 1.0});
  }
  return cases;
}

std::vector<HardCase> ScalesOnBoundaries(DType dtype, int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<HardCase> cases;
  for (int i = 0; i < count; ++i) {
    const Boundary boundary = RandomBoundary(FormatOf(dtype), static_cast<int>(random() % 6) - 3, random);
    const double sign = random() % 2 == 0 ? 1.0 : -1.0;
    const double position = static_cast<double>(1 + random() % 1000);
    const double inv_freq = std::exp2(Between(-60, -25, random)) / position;
    cases.push_back({position, inv_freq, sign * std::ldexp(boundary.odd, boundary.exponent)});
  }
  return cases;
}

}  // namespace posenc
