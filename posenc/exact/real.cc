#include "posenc/exact/real.h"

#include <limits>

#include "posenc/exact/ball.h"

namespace posenc {
namespace {

thread_local mpfr_prec_t precision = 256;

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

}  // namespace

mpfr_prec_t Real::Precision() {
  FreeMpfrCachesAtThreadEnd();  // every Real's constructor calls Precision()
  return precision;
}

RealPrecision::RealPrecision(mpfr_prec_t bits) : previous_(precision) { precision = bits; }
RealPrecision::~RealPrecision() { precision = previous_; }

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

bool IsDecided(const Real& x) {
  if (mpfr_zero_p(x.get()) || !mpfr_number_p(x.get())) return true;
  return mpfr_can_round(x.get(), mpfr_get_prec(x.get()) - 40, MPFR_RNDN, MPFR_RNDN, 53) != 0;
}

double NearestDouble(const Real& x) {
  mpfr_t rounded;
  mpfr_init2(rounded, 53);
  mpfr_set(rounded, x.get(), MPFR_RNDN);
  const double value = mpfr_get_d(rounded, MPFR_RNDN);
  mpfr_clear(rounded);
  return value;
}

std::optional<float> ToFloat(const Real& x) {
  Real low, high;
  Real error(1.0);
  mpfr_div_2ui(error.get(), error.get(), static_cast<unsigned long>(mpfr_get_prec(x.get()) - 100), MPFR_RNDU);
  mpfr_mul(error.get(), error.get(), x.get(), MPFR_RNDU);
  mpfr_sub(low.get(), x.get(), error.get(), MPFR_RNDN);
  mpfr_add(high.get(), x.get(), error.get(), MPFR_RNDN);
  const float nearest = NearestFloat(low);
  if (!(nearest == NearestFloat(high))) return std::nullopt;
  return nearest;
}

float NearestFloat(const Real& x) { return mpfr_get_flt(x.get(), MPFR_RNDN) + 0.0f; }

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
