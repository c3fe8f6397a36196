// Ball arithmetic: a real number as a float64 midpoint and a guaranteed error radius. If the whole ball rounds to one
// float32, the result is decided in some 20 ns; otherwise MPFR computes it (arithmetic.h).
//
// Elementary functions are the C library's, which differ between processors. That is allowed only here, because their
// error is part of the radius (kLibrary, four units in the last place; glibc states one), and a decided float32 is the
// same for every number in the ball.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace posenc {

class Ball {
 public:
  Ball(double value) : middle_(value) {}  // NOLINT: implicit conversion intended

  double middle() const { return middle_; }
  double radius() const { return radius_; }

  friend Ball operator+(const Ball& a, const Ball& b) {
    const double sum = a.middle_ + b.middle_;
    if (a.IsExact() && b.IsExact()) {
      // Rounding error of the sum (TwoSum, Knuth); 0 if exact. Exact ties must stay exact: no radius decides them.
      const double of_b = sum - a.middle_;
      if ((a.middle_ - (sum - of_b)) + (b.middle_ - of_b) == 0) return sum;
    }
    return Make(sum, a.radius_ + b.radius_, kOperation);
  }
  friend Ball operator-(const Ball& a, const Ball& b) { return a + -b; }
  Ball operator-() const {
    Ball result(-middle_);
    result.radius_ = radius_;
    return result;
  }
  friend Ball operator*(const Ball& a, const Ball& b) {
    const double product = a.middle_ * b.middle_;
    if (a.IsExact() && b.IsExact() && IsNormal(product) && std::fma(a.middle_, b.middle_, -product) == 0) {
      return product;
    }
    if ((a.IsExact() && a.middle_ == 0) || (b.IsExact() && b.middle_ == 0)) return 0.0;
    return Make(product, std::fabs(a.middle_) * b.radius_ + std::fabs(b.middle_) * a.radius_ + a.radius_ * b.radius_,
                kOperation);
  }
  friend Ball operator/(const Ball& a, const Ball& b) {
    const double quotient = a.middle_ / b.middle_, least = std::fabs(b.middle_) - b.radius_;
    if (!(least > 0)) return Unknown();
    if (a.IsExact() && a.middle_ == 0) return 0.0;
    if (a.IsExact() && b.IsExact() && IsNormal(quotient) && IsNormal(a.middle_) &&
        std::fma(quotient, b.middle_, -a.middle_) == 0) {
      return quotient;
    }
    return Make(quotient, (a.radius_ + std::fabs(quotient) * b.radius_) / least, kOperation);
  }

  friend Ball Log(const Ball& x) { return Logarithm(x, std::log(x.middle_), 1); }
  friend Ball Log2(const Ball& x) {
    int exponent;
    if (x.IsExact() && std::frexp(x.middle_, &exponent) == 0.5) return exponent - 1;
    return Logarithm(x, std::log2(x.middle_), 1.5);  // 1 / ln 2 is below 1.5
  }
  friend Ball Exp(const Ball& x) {
    if (x.IsExact() && x.middle_ == 0) return 1.0;
    const double value = std::exp(x.middle_);
    return Make(value, value * Growth(x.radius_), kLibrary);
  }
  // Requires base >= 0.
  friend Ball Pow(const Ball& base, const Ball& exponent) {
    if (exponent.IsExact() && exponent.middle_ == 1) return base;
    if (exponent.IsExact() && exponent.middle_ == 2) return base * base;
    if (base.IsExact() && base.middle_ == 0 && exponent.middle_ > exponent.radius_) return 0.0;
    const double value = std::pow(base.middle_, exponent.middle_);
    if (base.IsExact() && exponent.IsExact()) return Make(value, 0, kLibrary);
    return Make(value, value * Growth((exponent * Log(base)).radius_), kLibrary);
  }
  friend Ball Cos(const Ball& x) {
    if (x.IsExact() && x.middle_ == 0) return 1.0;
    return Make(std::cos(x.middle_), x.radius_ + kLibrary, 0);  // |cos| and its derivative are at most 1
  }
  friend Ball Max(const Ball& a, const Ball& b) {
    if (a.middle_ - a.radius_ >= b.middle_ + b.radius_) return a;
    if (b.middle_ - b.radius_ >= a.middle_ + a.radius_) return b;
    return Make(std::max(a.middle_, b.middle_), std::max(a.radius_, b.radius_), 0);
  }

  // Returns true if the number is >= 0, false if it is < 0, nullopt if the ball contains both.
  std::optional<bool> NotNegative() const {
    if (IsExact()) return middle_ >= 0;
    if (std::fabs(middle_) > radius_) return middle_ > 0;
    return std::nullopt;
  }

  // Returns the float32 nearest to the number, ties to even, zeros positive; nullopt if the ball does not decide it.
  std::optional<float> ToFloat() const {
    if (IsExact()) return static_cast<float>(middle_) + 0.0f;
    const double slack = radius_ + kOperation * std::fabs(middle_);
    const float low = static_cast<float>(middle_ - slack), high = static_cast<float>(middle_ + slack);
    if (!(low == high)) return std::nullopt;
    return low + 0.0f;
  }

 private:
  static constexpr double kOperation = 0x1p-52;  // relative; twice the error of rounding to nearest
  static constexpr double kLibrary = 0x1p-50;
  static constexpr double kUnderflow = std::numeric_limits<double>::min();

  // The factor covers the rounding errors of the radius, itself computed in float64 with a few operations.
  static Ball Make(double middle, double propagated, double relative) {
    Ball result(middle);
    result.radius_ = (propagated + relative * std::fabs(middle) + kUnderflow) * (1 + 0x1p-45);
    return std::isfinite(middle) && std::isfinite(result.radius_) ? result : Unknown();
  }
  static Ball Unknown() {
    Ball result(0.0);
    result.radius_ = std::numeric_limits<double>::infinity();
    return result;
  }
  static Ball Logarithm(const Ball& x, double value, double slope) {
    if (x.IsExact() && x.middle_ == 1) return 0.0;
    const double least = x.middle_ - x.radius_;
    if (!(least > 0)) return Unknown();
    return Make(value, slope * x.radius_ / least, kLibrary);
  }
  // Returns an upper bound of e^r - 1.
  static double Growth(double r) { return r <= 1 ? r + r * r : std::numeric_limits<double>::infinity(); }
  static bool IsNormal(double x) { return std::fabs(x) > 0x1p-900 && std::fabs(x) < 0x1p+1000; }
  bool IsExact() const { return radius_ == 0; }

  double middle_;
  double radius_ = 0;
};

}  // namespace posenc
