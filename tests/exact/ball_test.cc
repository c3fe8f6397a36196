// Balls contain the exact number, and what they decide equals MPFR's rounding.
#include "posenc/exact/ball.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "posenc/exact/arithmetic.h"
#include "tests/kernels/elements.h"
#include "tests/kernels/one_in.h"
#include "tests/reference/mpfr_number.h"

namespace posenc {
namespace {

using Exact = reference::Number<300>;
using reference::Number;

// The oracle of Max, which Number does not have.
Exact Larger(const Exact& a, const Exact& b) { return a < b ? b : a; }

struct Pair {
  Ball ball;
  Exact exact;
};

bool Holds(const Pair& x) {
  const Exact distance = x.exact - Exact(x.ball.middle());
  const Exact magnitude = distance < Exact(0) ? Exact(0) - distance : distance;
  return !(magnitude > Exact(x.ball.radius()));
}

// Returns a random number of moderate size; some are whole.
double Draw(std::mt19937_64& random) {
  const double x = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 30) - 63);
  const double whole[] = {0, 1, 2, 8, 100};
  return random() % 8 == 0 ? whole[random() % 5] : x;
}

Pair Step(std::mt19937_64& random, const Pair& a, const Pair& b) {
  const Exact zero(0);
  switch (random() % 9) {
    case 0: return {a.ball + b.ball, a.exact + b.exact};
    case 1: return {a.ball - b.ball, a.exact - b.exact};
    case 2: return {a.ball * b.ball, a.exact * b.exact};
    case 3: return b.exact == zero ? a : Pair{a.ball / b.ball, a.exact / b.exact};
    case 4: return a.exact > zero ? Pair{Log(a.ball), Log(a.exact)} : a;
    case 5: return a.exact > zero ? Pair{Log2(a.ball), Log2(a.exact)} : a;
    case 6: return a.exact < Exact(40) && a.exact > Exact(-40) ? Pair{Exp(a.ball), Exp(a.exact)} : a;
    case 7: return {Cos(a.ball), Cos(a.exact)};
    default: return {Max(a.ball, b.ball), Larger(a.exact, b.exact)};
  }
}

TEST(Ball, HoldsTheNumber) {
  std::mt19937_64 random(PrintedSeed(20240611));
  int64_t decided = 0, undecided = 0;
  for (int repeat = 0; repeat < 200000; ++repeat) {
    const double x = Draw(random), y = Draw(random);
    Pair a{x, x}, b{y, y};
    for (int step = 0; step < 4; ++step) {
      const Pair next = Step(random, a, b);
      if (!std::isfinite(next.ball.radius())) break;
      ASSERT_TRUE(Holds(next)) << "repeat " << repeat << ", step " << step << ", " << x << " and " << y;
      b = std::exchange(a, next);
    }
    const double rounded = a.exact.RoundedTo<24>();
    if (std::abs(rounded) < 0x1p-126 || std::abs(rounded) > 0x1p127) continue;  // RoundedTo has no subnormals
    const auto value = a.ball.ToFloat();
    (value ? decided : undecided) += 1;
    if (value) {
      ASSERT_EQ(*value, rounded) << "repeat " << repeat;
    }
  }
  EXPECT_GT(decided, 50 * undecided);
}

TEST(Ball, PowersHoldTheNumber) {
  std::mt19937_64 random(PrintedSeed(20240612));
  for (int repeat = 0; repeat < 100000; ++repeat) {
    const double x = Draw(random), y = static_cast<double>(random() % 4000) / 1000;
    if (x == 0 && y == 0) continue;
    ASSERT_TRUE(Holds({Pow(Ball(x), Ball(y)), Pow(Exact(x), Exact(y))})) << x << " ^ " << y;
    const double shift = std::ldexp(1, -20);  // a base with a radius
    if (x == 0) continue;
    const Ball base = Ball(x) * (Ball(1) / Ball(3)), exponent = Ball(y) + Ball(shift) / Ball(3);
    ASSERT_TRUE(Holds({Pow(base, exponent), Pow(Exact(x) / Exact(3), Exact(y) + Exact(shift) / Exact(3))}));
  }
}

TEST(Ball, KeepsExactnessSoThatTiesAreDecided) {
  const Ball tie = Ball(1) + Ball(0x1p-24);  // between two floats
  EXPECT_EQ(tie.radius(), 0);
  EXPECT_EQ(tie.ToFloat(), 1.0f);
  EXPECT_EQ((tie * Ball(3) / Ball(3)).radius(), 0);
  EXPECT_GT((Ball(1) / Ball(3)).radius(), 0);
  EXPECT_EQ((Pow(Ball(16777217), Ball(1)) * Ball(1)).ToFloat(), 16777216.0f);
  EXPECT_EQ(Log(Ball(1)).radius(), 0);
  EXPECT_GT((Ball(0.1) + Ball(0.2)).radius(), 0);
}

// The logarithms are as near to the middle of two floats as a float64 argument allows: balls leave many undecided.
TEST(Ball, LeavesNearTiesOpen) {
  std::mt19937_64 random(PrintedSeed(20240613));
  int open = 0;
  for (int repeat = 0; repeat < 20000; ++repeat) {
    const float below = std::bit_cast<float>(static_cast<uint32_t>(0x3f800000 + random() % 0x2000000));
    const Exact middle = (Exact(below) + Exact(std::nextafter(below, 100.0f))) / Exact(2);
    const double x = Exp(middle).ToDouble();
    const auto value = Log(Ball(x)).ToFloat();
    const double rounded = Log(Exact(x)).RoundedTo<24>();
    if (value) {
      ASSERT_EQ(*value, rounded);
    }
    open += !value;
    EXPECT_EQ(static_cast<double>(RoundedLog(static_cast<float>(x))),
              Log(Exact(static_cast<float>(x))).RoundedTo<24>());
  }
  EXPECT_GT(open, 1000);
}

// Tests all of EvaluateFloats with arguments near ties: every result equals MPFR's.
template <class A>
class LogFormula {
 public:
  explicit LogFormula(const std::vector<double>& xs) : xs_(xs) {}
  std::vector<typename A::Element> operator()(int64_t n) const { return {Log(typename A::Element(xs_[n]))}; }

 private:
  const std::vector<double>& xs_;
};

TEST(EvaluateFloats, FallsBackWhereBallsAreOpen) {
  std::mt19937_64 random(PrintedSeed(20240614));
  std::vector<double> xs;
  for (int n = 0; n < 20000; ++n) {
    const float below = std::bit_cast<float>(static_cast<uint32_t>(0x3f800000 + random() % 0x2000000));
    const Exact middle = (Exact(below) + Exact(std::nextafter(below, 100.0f))) / Exact(2);
    xs.push_back(Exp(middle).ToDouble());
  }
  const auto count = static_cast<int64_t>(xs.size());
  const std::vector<float> values = EvaluateFloats<LogFormula>(Frequencies::kExact, xs, 0, count);
  for (int64_t n = 0; n < count; ++n) ASSERT_EQ(values[n], Log(Exact(xs[n])).RoundedTo<24>()) << xs[n];
}

// (n + 1/2) (1/m) m is a tie, though 1/m is inexact and the product may be on either side of the tie.
template <class E>
E HalfAbove(int64_t n, double unit) {
  const E odd(static_cast<double>(2 * (n % 1000) + 3));
  return (E(static_cast<double>(n)) + E(0.5)) * E(unit) * (E(1.0) / odd) * odd;
}

template <class A>
class TieFormula {
 public:
  explicit TieFormula(double unit) : unit_(unit) {}
  std::vector<typename A::Element> operator()(int64_t n) const { return {HalfAbove<typename A::Element>(n, unit_)}; }

 private:
  double unit_;
};

TEST(EvaluateFloats, RoundsTiesOfInexactTermsToEven) {
  for (double unit : {1.0, -0x1p60, 0x1p-149}) {
    const int64_t first = unit == 0x1p-149 ? 0 : 1 << 23;
    const std::vector<float> values = EvaluateFloats<TieFormula>(Frequencies::kExact, unit, first, 300);
    for (int64_t n = first; n < first + 300; ++n) {
      ASSERT_EQ(values[n - first], unit * static_cast<double>(n + n % 2)) << unit << ", " << n;
    }
  }
}

TEST(Evaluate, RoundsTiesOfInexactTermsToEven) {
  for (double unit : {1.0, -0x1p500, 0x1p-1074}) {
    const int64_t first = unit == 0x1p-1074 ? 0 : int64_t{1} << 52;
    const auto formula = [&](auto a) {
      using A = decltype(a);
      Values<A> values;
      for (int64_t n = first; n < first + 300; ++n) values.list.push_back(HalfAbove<typename A::Element>(n, unit));
      return values;
    };
    const std::vector<double> values = Evaluate(Frequencies::kExact, formula).list;
    for (int64_t n = first; n < first + 300; ++n) {
      ASSERT_EQ(values[n - first], unit * static_cast<double>(n + n % 2)) << unit << ", " << n;
    }
  }
}

// A million random arguments, and the float32 functions that try balls before MPFR.
TEST(EvaluateFloats, IsMpfrsOnRandomArguments) {
  std::mt19937_64 random(PrintedSeed(20240615));
  std::vector<double> xs;
  for (int n = 0; n < 1000000 / static_cast<int>(OneIn()); ++n) {
    xs.push_back(
        std::ldexp(1 + std::ldexp(static_cast<double>(random() >> 12), -52), static_cast<int>(random() % 60) - 30));
  }
  const auto count = static_cast<int64_t>(xs.size());
  const std::vector<float> values = EvaluateFloats<LogFormula>(Frequencies::kExact, xs, 0, count);
  using Wide = Number<80>;
  for (int64_t n = 0; n < count; ++n) {
    ASSERT_EQ(values[n], Log(Wide(xs[n])).RoundedTo<24>()) << xs[n];
    const auto x = static_cast<float>(xs[n]);
    if (n % 4 != 0) continue;
    ASSERT_EQ(RoundedLog(x), Log(Wide(x)).RoundedTo<24>()) << x;
    ASSERT_EQ(RoundedLog2(x), Log2(Wide(x)).RoundedTo<24>()) << x;
    ASSERT_EQ(RoundedCos(x), Cos(Wide(x)).RoundedTo<24>()) << x;
    if (x < 80) {
      ASSERT_EQ(RoundedExp(x), Exp(Wide(x)).RoundedTo<24>()) << x;
    }
    ASSERT_EQ(RoundedPow(x, 0.75f), Pow(Wide(x), Wide(0.75)).RoundedTo<24>()) << x;
  }
}

// Balls and MPFR round float32's subnormals and overflow alike.
TEST(EvaluateFloats, RoundsAtTheEndsOfFloat32) {
  const RealPrecision working(256);
  for (double x :
       {0x1.000001p-127, 0x1.8p-149, 0x1p-150, 0x1.000001p-150, 1e-60, -1e-60, 0x1.ffffffp127, 0x1.fffffep127, 1e300}) {
    EXPECT_EQ(*Ball(x).ToFloat(), static_cast<float>(x) + 0.0f) << x;
    EXPECT_EQ(NearestFloat(Real(x)), static_cast<float>(x) + 0.0f) << x;
    EXPECT_FALSE(std::signbit(*Ball(-std::abs(1e-60)).ToFloat()));
  }
}

}  // namespace
}  // namespace posenc
