// Real numbers by MPFR, for plan-time formulas. Never on the data path.
#pragma once

#include <mpfr.h>
#include <functional>
#include <optional>

#include "posenc/base/interruption.h"

namespace posenc {

// A real number at the working precision of the current thread (RealPrecision). Each operation rounds to nearest. The
// elementary functions are interruption points: at high precision one can take a millisecond.
class Real {
 public:
  Real() {
    mpfr_init2(value_, Precision());
    mpfr_set_zero(value_, 1);
  }
  Real(double value) : Real() { mpfr_set_d(value_, value, MPFR_RNDN); }  // NOLINT: a number is a number
  Real(const Real& other) : Real() { mpfr_set(value_, other.value_, MPFR_RNDN); }
  Real& operator=(const Real& other) {
    mpfr_set(value_, other.value_, MPFR_RNDN);
    return *this;
  }
  ~Real() { mpfr_clear(value_); }

  static Real Pi();

  mpfr_srcptr get() const { return value_; }
  mpfr_ptr get() { return value_; }

  friend Real operator+(const Real& a, const Real& b) { return Binary(mpfr_add, a, b); }
  friend Real operator-(const Real& a, const Real& b) { return Binary(mpfr_sub, a, b); }
  friend Real operator*(const Real& a, const Real& b) { return Binary(mpfr_mul, a, b); }
  friend Real operator/(const Real& a, const Real& b) { return Binary(mpfr_div, a, b); }
  friend bool operator<(const Real& a, const Real& b) { return mpfr_less_p(a.value_, b.value_); }
  friend bool operator>(const Real& a, const Real& b) { return b < a; }
  friend bool operator<=(const Real& a, const Real& b) { return mpfr_lessequal_p(a.value_, b.value_); }
  friend bool operator>=(const Real& a, const Real& b) { return b <= a; }
  friend bool operator==(const Real& a, const Real& b) { return mpfr_equal_p(a.value_, b.value_); }

  friend Real Pow(const Real& base, const Real& exponent) {
    InterruptionPoint();
    return Binary(mpfr_pow, base, exponent);
  }
  friend Real Log(const Real& x) { return Elementary(mpfr_log, x); }
  friend Real Log2(const Real& x) { return Elementary(mpfr_log2, x); }
  friend Real Exp(const Real& x) { return Elementary(mpfr_exp, x); }
  friend Real Cos(const Real& x) { return Elementary(mpfr_cos, x); }
  friend Real Max(const Real& a, const Real& b) { return a < b ? b : a; }
  friend Real Sqrt(const Real& x) { return Unary(mpfr_sqrt, x); }
  friend Real Floor(const Real& x);
  friend Real Ceil(const Real& x);

  static mpfr_prec_t Precision();

 private:
  template <class Function>
  static Real Unary(Function function, const Real& x) {
    Real result;
    function(result.value_, x.value_, MPFR_RNDN);
    return result;
  }
  template <class Function>
  static Real Elementary(Function function, const Real& x) {
    InterruptionPoint();
    return Unary(function, x);
  }
  template <class Function>
  static Real Binary(Function function, const Real& a, const Real& b) {
    Real result;
    function(result.value_, a.value_, b.value_, MPFR_RNDN);
    return result;
  }

  mpfr_t value_;
};

// Sets the working precision, in bits, while it lives.
class RealPrecision {
 public:
  explicit RealPrecision(mpfr_prec_t bits);
  ~RealPrecision();
  RealPrecision(const RealPrecision&) = delete;
  RealPrecision& operator=(const RealPrecision&) = delete;

 private:
  mpfr_prec_t previous_;
};

// Whether x, whose error is below 2^-(precision - 40) relative, rounds to one and the same float64 for sure; and that
// number (without subnormals).
bool IsDecided(const Real& x);
double NearestDouble(const Real& x);

// The float32 nearest to x, ties to even, zeros positive: nothing where an error of 2^-(precision - 100) relative could
// change it. The margin is for formulas that cancel.
std::optional<float> ToFloat(const Real& x);
// The same, taking x as exact.
float NearestFloat(const Real& x);

// Correctly rounded elementary functions on machine numbers (std::pow and its like differ between processors).
// F is float or double.
template <class F>
F RoundedPow(F base, F exponent);
template <class F>
F RoundedLog(F x);
template <class F>
F RoundedLog2(F x);
template <class F>
F RoundedExp(F x);
template <class F>
F RoundedCos(F x);

// MPFR keeps constants per thread and forgets to free them when the thread ends.

// To be called where MPFR is about to be used: frees the calling thread's constants at its end.
inline void FreeMpfrCachesAtThreadEnd() {
  struct Owner {
    ~Owner() { mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); }
  };
  static thread_local Owner owner;
}

}  // namespace posenc
