#include "posenc/exact/real.h"

#include <limits>

#include "posenc/exact/ball.h"

namespace posenc {
namespace {

// Runs one MPFR operation with F's precision and exponent range, subnormals included. Interruption point.
template <class F, class Operation>
F Correctly(Operation operation) {
  FreeMpfrCachesAtThreadEnd();
  InterruptionPoint();
  constexpr int kDigits = std::numeric_limits<F>::digits;
  const mpfr_exp_t emin = mpfr_get_emin(), emax = mpfr_get_emax();
  mpfr_t result;
  mpfr_init2(result, kDigits);
  mpfr_set_emin(std::numeric_limits<F>::min_exponent - kDigits + 1);
  mpfr_set_emax(std::numeric_limits<F>::max_exponent);
  const int ternary = operation(result);
  mpfr_subnormalize(result, ternary, MPFR_RNDN);
  const double value = mpfr_get_d(result, MPFR_RNDN);  // exact: it has F's format
  mpfr_set_emin(emin);
  mpfr_set_emax(emax);
  mpfr_clear(result);
  return static_cast<F>(value);
}

// A double converted exactly to MPFR.
class Argument {
 public:
  explicit Argument(double value) {
    mpfr_init2(value_, 53);
    mpfr_set_d(value_, value, MPFR_RNDN);
  }
  ~Argument() { mpfr_clear(value_); }
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;
  operator mpfr_srcptr() const { return value_; }  // NOLINT(google-explicit-constructor): acts as an mpfr_t

 private:
  mpfr_t value_;
};

// Returns nearest(x), or nullopt if a relative error of 2^-(precision - margin) could change it.
template <class F>
std::optional<F> IfCertain(F (*nearest)(const Real&), const Real& x, int margin) {
  if (mpfr_zero_p(x.get()) || !mpfr_number_p(x.get())) return nearest(x);
  Real error, low, high;
  mpfr_div_2ui(error.get(), x.get(), static_cast<unsigned long>(mpfr_get_prec(x.get()) - margin), MPFR_RNDN);
  mpfr_sub(low.get(), x.get(), error.get(), MPFR_RNDN);
  mpfr_add(high.get(), x.get(), error.get(), MPFR_RNDN);
  const F value = nearest(low);
  return value == nearest(high) ? std::optional(value) : std::nullopt;
}

}  // namespace

mpfr_prec_t Real::Precision() {
  FreeMpfrCachesAtThreadEnd();  // every Real's constructor calls Precision()
  return RealPrecision::Current();
}

Real Real::Pi() {
  Real result;
  mpfr_const_pi(result.value_, MPFR_RNDN);
  return result;
}

Real Floor(const Real& x) {
  Real result;
  mpfr_floor(result.value_, x.value_);
  return result;
}

Real Ceil(const Real& x) {
  Real result;
  mpfr_ceil(result.value_, x.value_);
  return result;
}

double NearestDouble(const Real& x) { return mpfr_get_d(x.get(), MPFR_RNDN); }
float NearestFloat(const Real& x) { return mpfr_get_flt(x.get(), MPFR_RNDN) + 0.0f; }

std::optional<double> ToDouble(const Real& x) { return IfCertain(NearestDouble, x, 40); }
std::optional<float> ToFloat(const Real& x) { return IfCertain(NearestFloat, x, 100); }

Real Tie(const Real& x) {
  const RealPrecision bits(64);
  return x;
}

template <class F>
F RoundedPow(F base, F exponent) {
  if constexpr (std::is_same_v<F, float>) {
    if (base > 0) {
      if (const auto fast = Pow(Ball(base), Ball(exponent)).ToFloat()) return *fast;
    }
  }
  const Argument b(base), e(exponent);
  return Correctly<F>([&](mpfr_ptr result) { return mpfr_pow(result, b, e, MPFR_RNDN); });
}
template <class F>
F RoundedLog(F x) {
  if constexpr (std::is_same_v<F, float>) {
    if (x > 0) {
      if (const auto fast = Log(Ball(x)).ToFloat()) return *fast;
    }
  }
  const Argument argument(x);
  return Correctly<F>([&](mpfr_ptr result) { return mpfr_log(result, argument, MPFR_RNDN); });
}
template <class F>
F RoundedLog2(F x) {
  if constexpr (std::is_same_v<F, float>) {
    if (x > 0) {
      if (const auto fast = Log2(Ball(x)).ToFloat()) return *fast;
    }
  }
  const Argument argument(x);
  return Correctly<F>([&](mpfr_ptr result) { return mpfr_log2(result, argument, MPFR_RNDN); });
}
template <class F>
F RoundedExp(F x) {
  if constexpr (std::is_same_v<F, float>) {
    if (std::isfinite(x)) {
      if (const auto fast = Exp(Ball(x)).ToFloat()) return *fast;
    }
  }
  const Argument argument(x);
  return Correctly<F>([&](mpfr_ptr result) { return mpfr_exp(result, argument, MPFR_RNDN); });
}
template <class F>
F RoundedCos(F x) {
  if constexpr (std::is_same_v<F, float>) {
    if (std::isfinite(x)) {
      if (const auto fast = Cos(Ball(x)).ToFloat()) return *fast;
    }
  }
  const Argument argument(x);
  return Correctly<F>([&](mpfr_ptr result) { return mpfr_cos(result, argument, MPFR_RNDN); });
}

template float RoundedPow(float, float);
template double RoundedPow(double, double);
template float RoundedLog(float);
template double RoundedLog(double);
template float RoundedLog2(float);
template double RoundedLog2(double);
template float RoundedExp(float);
template double RoundedExp(double);
template float RoundedCos(float);
template double RoundedCos(double);

}  // namespace posenc
