// MPFR real numbers for plan-time formulas. Not for the hot path.
#pragma once

#include <mpfr.h>
#include <functional>
#include <optional>

#include "posenc/base/interruption.h"
#include "posenc/base/real_precision.h"

namespace posenc {

// RAII wrapper of mpfr_t at the working precision of the current thread (RealPrecision). Operations round to nearest.
// Elementary functions are interruption points: at high precision one can take a millisecond.
class Real {
 public:
  Real() {
    mpfr_init2(value_, Precision());
    mpfr_set_zero(value_, 1);
  }
  Real(double value) : Real() { mpfr_set_d(value_, value, MPFR_RNDN); }  // NOLINT: implicit conversion intended
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
  friend Real LogOnePlus(const Real& x) { return Elementary(mpfr_log1p, x); }
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

// Returns the number nearest to x, taken as exact: ties to even. A float32 zero is positive.
double NearestDouble(const Real& x);
float NearestFloat(const Real& x);

// Returns the same; nullopt if an error of x could change it, a relative error of 2^-(precision - 40) for a float64 and
// of 2^-(precision - 100) for a float32. The margins are for formulas with cancellation.
std::optional<double> ToDouble(const Real& x);
std::optional<float> ToFloat(const Real& x);

// Returns the tie that x is but for the errors of its formula. The middle between two numbers has at most 54 bits, so
// rounding x to 64 bits removes the errors, whose sign would otherwise decide how the tie is rounded.
Real Tie(const Real& x);

// Correctly rounded elementary functions for F = float or double, the same on every processor, unlike std::pow etc.
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

// MPFR caches constants per thread and leaks them when the thread ends.

// Frees the calling thread's MPFR cache when the thread ends. Call it before using MPFR.
inline void FreeMpfrCachesAtThreadEnd() {
  struct Owner {
    ~Owner() { mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE); }
  };
  static thread_local Owner owner;
}

}  // namespace posenc
