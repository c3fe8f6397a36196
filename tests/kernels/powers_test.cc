// Powers against MPFR, and the same bytes on every target.
#include "posenc/kernels/powers.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/elements.h"
#include "tests/kernels/every_target.h"
#include "tests/kernels/one_in.h"
#include "tests/reference/mpfr_number.h"

namespace posenc {
namespace {

using Real = reference::Number<200>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Computed {
  std::vector<double> powers, errors;
};
Computed Compute(const std::vector<double>& log_base, double exponent) {
  Computed computed{std::vector<double>(log_base.size()), std::vector<double>(log_base.size())};
  Powers(log_base.data(), exponent, log_base.size(), computed.powers.data(), computed.errors.data());
  return computed;
}

// Exponents of all sizes, and near multiples of ln 2 / 2, where the argument is reduced.
std::vector<double> Arguments() {
  std::vector<double> x = {0.0, -0.0, 700, -700, 0x1p-1074, -0x1p-60};
  for (int n = -1010; n <= 1010; ++n) {
    const double half = n * 0.34657359027997264;
    for (double near : {half, std::nextafter(half, -kInfinity), std::nextafter(half, kInfinity)}) x.push_back(near);
  }
  std::mt19937_64 random(PrintedSeed(20261123));
  for (const double size : {0.01, 1.0, 40.0, 700.0}) {
    std::uniform_real_distribution<double> uniform(-size, size);
    for (unsigned n = 0; n < 20000 / OneIn(); ++n) x.push_back(uniform(random));
  }
  return x;
}

// Most of the bound is for the inputs' errors and for the caller's multiplication.
TEST(Powers, AreWithinTheirBounds) {
  for (const double exponent : {1.0, -0.75}) {
    std::vector<double> log_base;
    for (const double x : Arguments()) log_base.push_back(x / exponent);
    const Computed computed = Compute(log_base, exponent);
    double worst = 0;
    for (size_t n = 0; n < log_base.size(); ++n) {
      if (!(std::abs(log_base[n] * exponent) <= 700)) continue;
      const Real exact = Exp(Real(log_base[n]) * Real(exponent));
      const double error = ((Real(computed.powers[n]) - exact) / exact).ToDouble();
      worst = std::max(worst, std::abs(error) / computed.errors[n]);
    }
    EXPECT_LT(worst, 0.125);
    EXPECT_GT(worst, 0.001);  // the bound is not far too large
    OnEveryTarget([&] {
      const Computed again = Compute(log_base, exponent);
      EXPECT_TRUE(again.powers == computed.powers && again.errors == computed.errors);
    });
  }
}

TEST(Powers, BeyondTheirRangeAreNoNumbers) {
  OnEveryTarget([] {
    for (const double x : {std::nextafter(700, kInfinity), -701.0, 1e300, kInfinity, -kInfinity, std::nan("")}) {
      EXPECT_TRUE(std::isnan(Compute({x}, 1).powers[0])) << x;
    }
    EXPECT_EQ(Compute({0}, 5).powers[0], 1);
    EXPECT_TRUE(std::isnan(Compute({0}, kInfinity).powers[0]));
  });
}

// A column's power does not depend on the number of columns.
TEST(Powers, OfAnyCount) {
  OnEveryTarget([] {
    for (size_t count = 0; count <= 70; ++count) {
      std::vector<double> log_base(count);
      for (size_t n = 0; n < count; ++n) log_base[n] = -0.01 * static_cast<double>(n);
      const Computed all = Compute(log_base, 3.7);
      for (size_t n = 0; n < count; ++n) {
        const Computed one = Compute({log_base[n]}, 3.7);
        EXPECT_EQ(all.powers[n], one.powers[0]);
        EXPECT_EQ(all.errors[n], one.errors[0]);
      }
    }
  });
}

}  // namespace
}  // namespace posenc
