// Arithmetics for evaluating formulas. A method writes its formula once, as a template, with the operations in the
// order of the models' own code; the arithmetic determines where results are rounded:
//
//   ExactArithmetic    real numbers; the result is rounded once, to float64.
//   BallArithmetic     real numbers as float64 with an error bound: enough for most float32 results.
//   Float64Arithmetic  every operation rounded to float64.
//   Float32Arithmetic  tensor operations rounded to float32, Python scalar operations (Scalar) to float64.
//
// Arithmetic::Element(scalar) converts a Scalar to an Element with rounding, as torch does in mixed operations.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "posenc/base/interruption.h"
#include "posenc/base/modes.h"
#include "posenc/exact/ball.h"
#include "posenc/exact/real.h"

namespace posenc {

// A float or double whose elementary functions are correctly rounded.
template <class F>
class Rounded {
 public:
  Rounded(double value) : value_(static_cast<F>(value)) {}  // NOLINT: implicit conversion intended
  template <class G>
  explicit Rounded(Rounded<G> other) : value_(static_cast<F>(other.value())) {}
  static Rounded Pi() { return Rounded(3.14159265358979311600); }

  F value() const { return value_; }

  friend Rounded operator+(Rounded a, Rounded b) { return Make(a.value_ + b.value_); }
  friend Rounded operator-(Rounded a, Rounded b) { return Make(a.value_ - b.value_); }
  friend Rounded operator*(Rounded a, Rounded b) { return Make(a.value_ * b.value_); }
  friend Rounded operator/(Rounded a, Rounded b) { return Make(a.value_ / b.value_); }
  friend bool operator<(Rounded a, Rounded b) { return a.value_ < b.value_; }
  friend bool operator>(Rounded a, Rounded b) { return a.value_ > b.value_; }
  friend bool operator<=(Rounded a, Rounded b) { return a.value_ <= b.value_; }
  friend bool operator>=(Rounded a, Rounded b) { return a.value_ >= b.value_; }
  friend bool operator==(Rounded a, Rounded b) { return a.value_ == b.value_; }

  friend Rounded Pow(Rounded base, Rounded exponent) { return Make(RoundedPow<F>(base.value_, exponent.value_)); }
  friend Rounded Log(Rounded x) { return Make(RoundedLog<F>(x.value_)); }
  friend Rounded LogOnePlus(Rounded x) { return Log(x + Rounded(1.0)); }
  friend Rounded Log2(Rounded x) { return Make(RoundedLog2<F>(x.value_)); }
  friend Rounded Exp(Rounded x) { return Make(RoundedExp<F>(x.value_)); }
  friend Rounded Cos(Rounded x) { return Make(RoundedCos<F>(x.value_)); }
  friend Rounded Max(Rounded a, Rounded b) { return a < b ? b : a; }
  friend Rounded Sqrt(Rounded x) { return Make(std::sqrt(x.value_)); }  // correctly rounded by IEEE 754
  friend Rounded Floor(Rounded x) { return Make(std::floor(x.value_)); }
  friend Rounded Ceil(Rounded x) { return Make(std::ceil(x.value_)); }

 private:
  static Rounded Make(F value) { return Rounded(static_cast<double>(value)); }
  F value_;
};

template <class F>
double NearestDouble(Rounded<F> x) {
  return x.value();
}

struct ExactArithmetic {
  using Scalar = Real;
  using Element = Real;
};
struct BallArithmetic {
  using Scalar = Ball;
  using Element = Ball;
};
struct Float64Arithmetic {
  using Scalar = Rounded<double>;
  using Element = Rounded<double>;
};
struct Float32Arithmetic {
  using Scalar = Rounded<double>;
  using Element = Rounded<float>;
};

// True for the arithmetics over the real numbers. There a formula may be written in another order, which loses less.
template <class A>
constexpr bool kOverReals = std::is_same_v<A, ExactArithmetic> || std::is_same_v<A, BallArithmetic>;

// Result of a formula in arithmetic A: one list (one value per pair, or per head) and a few scalars.
template <class A>
struct Values {
  std::vector<typename A::Element> list;
  std::vector<typename A::Scalar> scalars;
};

// Result of a formula as float64; under Float32Arithmetic the list holds float32 values.
struct Numbers {
  std::vector<double> list;
  std::vector<double> scalars;
};

template <class A>
Numbers ToNumbers(const Values<A>& values) {
  Numbers numbers;
  for (const auto& x : values.list) numbers.list.push_back(NearestDouble(x));
  for (const auto& x : values.scalars) numbers.scalars.push_back(NearestDouble(x));
  return numbers;
}

// A value that is undecided at this precision, or at a higher one, is a tie. Formulas add terms as far apart as float64
// parameters can be, 2^-1074 and 2^1024: those with float64 results go on to 1280 bits, because such a sum can be
// within 2^-1130 of a tie.
constexpr mpfr_prec_t kTieBits = 1024;

// Evaluates a formula, given as a generic callable `formula(A{}) -> Values<A>`, in the given arithmetic. Under kExact
// the precision doubles until every value provably rounds to one float64 (Ziv's strategy); ties go to even.
template <class Formula>
Numbers Evaluate(Frequencies arithmetic, const Formula& formula) {
  switch (arithmetic) {
    case Frequencies::kFloat32: return ToNumbers(formula(Float32Arithmetic{}));
    case Frequencies::kFloat64: return ToNumbers(formula(Float64Arithmetic{}));
    case Frequencies::kExact: break;
  }
  for (mpfr_prec_t bits = 160;; bits *= 2) {
    const RealPrecision working(bits);
    const Values<ExactArithmetic> values = formula(ExactArithmetic{});
    bool decided = true;
    const auto rounded = [&decided](const std::vector<Real>& reals) {
      std::vector<double> doubles;
      for (const Real& x : reals) {
        const std::optional<double> certain = ToDouble(x);
        decided = decided && certain;
        doubles.push_back(certain ? *certain : NearestDouble(Tie(x)));
      }
      return doubles;
    };
    Numbers numbers{rounded(values.list), rounded(values.scalars)};
    if (decided || bits >= kTieBits) return numbers;
  }
}

// MPFR fallback of EvaluateFloats() for list values that BallArithmetic leaves undecided.
template <template <class> class Formula, class Settings>
class ExactLists {
 public:
  explicit ExactLists(const Settings& settings) : settings_(settings) {}

  float Value(int64_t n, size_t i) {
    for (mpfr_prec_t bits = kFirstBits;; bits *= 2) {
      const RealPrecision working(bits);
      const Real value = Kept(n, bits)[i];
      if (const auto decided = ToFloat(value)) return *decided;
      if (bits >= kTieBits) return NearestFloat(Tie(value));
    }
  }

 private:
  static constexpr mpfr_prec_t kFirstBits = 256;

  // Returns list n at `bits` of working precision. Cached, because a list is slow and several values may be undecided.
  const std::vector<Real>& Kept(int64_t n, mpfr_prec_t bits) {
    if (kept_ != n) lists_.clear();
    kept_ = n;
    auto [list, is_new] = lists_.try_emplace(bits);
    if (!is_new) return list->second;
    if (bits != kFirstBits) {
      list->second = Formula<ExactArithmetic>(settings_)(n);
    } else {
      if (!formula_) formula_.emplace(settings_);
      list->second = (*formula_)(n);
    }
    return list->second;
  }

  const Settings& settings_;
  std::optional<Formula<ExactArithmetic>> formula_;  // prepared at kFirstBits
  std::optional<int64_t> kept_;
  std::map<mpfr_prec_t, std::vector<Real>> lists_;  // list kept_, by precision in bits
};

// Returns the concatenated float32 lists n = first .. first + count - 1. Interruptible. `Formula<A>(settings)` prepares
// the data shared by all lists, in arithmetic A; called with n it returns list n, a vector of A's Elements. Under
// kExact BallArithmetic decides nearly every value.
template <template <class> class Formula, class Settings>
std::vector<float> EvaluateFloats(Frequencies arithmetic, const Settings& settings, int64_t first, int64_t count) {
  std::vector<float> floats;
  const auto append = [&](const auto& formula, const auto& round) {
    for (int64_t n = first; n < first + count; ++n) {
      const auto list = formula(n);
      if (n % 64 == 0 || list.size() > 64) InterruptionPoint();
      for (size_t i = 0; i < list.size(); ++i) floats.push_back(round(list[i], n, i));
    }
    return std::move(floats);
  };
  const auto cast = [](const auto& x, int64_t, size_t) { return static_cast<float>(x.value()) + 0.0f; };
  switch (arithmetic) {
    case Frequencies::kFloat32: return append(Formula<Float32Arithmetic>(settings), cast);
    case Frequencies::kFloat64: return append(Formula<Float64Arithmetic>(settings), cast);
    case Frequencies::kExact: break;
  }
  ExactLists<Formula, Settings> exact(settings);
  return append(Formula<BallArithmetic>(settings), [&](const Ball& ball, int64_t n, size_t i) {
    const auto decided = ball.ToFloat();
    return decided ? *decided : exact.Value(n, i);
  });
}

}  // namespace posenc
