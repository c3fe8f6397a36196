// The sigmoid against MPFR, and the same bytes on every target.
#include "posenc/kernels/sigmoid.h"

#include <cmath>
#include <limits>

#include "tests/kernels/elements.h"
#include "tests/kernels/every_target.h"
#include "tests/kernels/one_in.h"
#include "tests/reference/mpfr_number.h"
#include "tests/reference/ulp.h"

namespace posenc {
namespace {

using Real = reference::Number<200>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double Exact(double x) { return (Real(1.0) / (Real(1.0) + Exp(Real(0.0) - Real(x)))).ToDouble(); }

std::vector<double> Computed(std::vector<double> x) {
  Sigmoid(x.data(), x.size());
  return x;
}

// Arguments of every size, up to the last that is computed and a little beyond, and near multiples of ln 2 / 2, where
// the argument is reduced.
std::vector<double> Arguments() {
  const int draws = 20000 / static_cast<int>(OneIn());
  std::mt19937_64 random(PrintedSeed(20261121));
  std::vector<double> x = {0.0, -0.0, 700, -700, 1, -1, 0x1p-1074, -0x1p-1074, 0x1p-53, -0x1p-53};
  for (int n = -1010; n <= 1010; ++n) {
    const double half = n * 0.34657359027997264;
    for (double near : {half, std::nextafter(half, -kInfinity), std::nextafter(half, kInfinity)}) {
      if (std::abs(near) <= 700) x.push_back(near);
    }
  }
  for (const double size : {1.0, 40.0, 700.0}) {
    std::uniform_real_distribution<double> uniform(-size, size);
    for (int n = 0; n < draws; ++n) x.push_back(uniform(random));
  }
  std::uniform_int_distribution<int> exponents(-60, 8);
  std::uniform_real_distribution<double> mantissas(-2, 2);
  for (int n = 0; n < draws; ++n) x.push_back(std::ldexp(mantissas(random), exponents(random)));
  return x;
}

TEST(Sigmoid, WithinFourUnits) {
  const std::vector<double> x = Arguments();
  const std::vector<double> y = Computed(x);
  double worst = 0, at = 0;
  for (size_t n = 0; n < x.size(); ++n) {
    const double error = reference::Ulps(y[n], Exact(x[n]));
    if (error > worst) worst = error, at = x[n];
  }
  std::printf("largest error: %g units in the last place, at %a\n", worst, at);
  EXPECT_LT(worst, 4) << at;
}

TEST(Sigmoid, Edges) {
  const std::vector<double> x = {0.0, -0.0, kInfinity, -kInfinity, std::nextafter(700, kInfinity), -1e300};
  EXPECT_EQ(Computed(x), (std::vector<double>{0.5, 0.5, 1, 0, 1, 0}));
  EXPECT_FALSE(std::signbit(Computed({-kInfinity})[0]));
  EXPECT_EQ(Computed({700}), std::vector<double>{1});
  EXPECT_GT(Computed({-700})[0], 0);
  EXPECT_TRUE(std::isnan(Computed({std::numeric_limits<double>::quiet_NaN()})[0]));
}

TEST(Sigmoid, TheSameBytesOnEveryTarget) {
  std::vector<double> x = Arguments();
  x.insert(x.end(), {kInfinity, -kInfinity, std::nextafter(700, kInfinity), std::nextafter(-700, -kInfinity), 1e300});
  const std::vector<double> expected = Computed(x);
  OnEveryTarget([&] { EXPECT_TRUE(Computed(x) == expected); });
}

// A result does not depend on the number of elements.
TEST(Sigmoid, EveryCount) {
  for (size_t count = 0; count <= 70; ++count) {
    std::vector<double> x(count);
    for (size_t n = 0; n < count; ++n) x[n] = 0.37 * static_cast<double>(n) - 11;
    std::vector<double> expected;
    for (double value : x) expected.push_back(Computed({value})[0]);
    OnEveryTarget([&] { EXPECT_EQ(Computed(x), expected); });
  }
}

}  // namespace
}  // namespace posenc
