// Reference: numbers that MPFR rounds to nearest, to a fixed number of binary digits, after every operation.
#pragma once

#include <mpfr.h>

#include <utility>

namespace posenc::reference {

template <int kDigits>
class Number {
 public:
  Number() {
    mpfr_init2(value_, kDigits);
    mpfr_set_zero(value_, 1);
  }
  Number(double x) : Number() { mpfr_set_d(value_, x, MPFR_RNDN); }  // NOLINT: a number is a number
  Number(const Number& other) : Number() { mpfr_set(value_, other.value_, MPFR_RNDN); }
  template <int kOther>
  explicit Number(const Number<kOther>& other) : Number() {
    mpfr_set(value_, other.get(), MPFR_RNDN);
  }
  Number& operator=(const Number& other) {
    mpfr_set(value_, other.value_, MPFR_RNDN);
    return *this;
  }
  ~Number() { mpfr_clear(value_); }

  static Number Pi() {
    return Make([](mpfr_ptr r) { mpfr_const_pi(r, MPFR_RNDN); });
  }

  mpfr_srcptr get() const { return value_; }
  // Rounded once more, to float64 or to kOther digits.
  double ToDouble() const { return mpfr_get_d(value_, MPFR_RNDN); }
  template <int kOther>
  double RoundedTo() const {
    return Number<kOther>(*this).ToDouble();
  }

  friend Number operator+(const Number& a, const Number& b) {
    return Make([&](mpfr_ptr r) { mpfr_add(r, a.value_, b.value_, MPFR_RNDN); });
  }
  friend Number operator-(const Number& a, const Number& b) {
    return Make([&](mpfr_ptr r) { mpfr_sub(r, a.value_, b.value_, MPFR_RNDN); });
  }
  friend Number operator*(const Number& a, const Number& b) {
    return Make([&](mpfr_ptr r) { mpfr_mul(r, a.value_, b.value_, MPFR_RNDN); });
  }
  friend Number operator/(const Number& a, const Number& b) {
    return Make([&](mpfr_ptr r) { mpfr_div(r, a.value_, b.value_, MPFR_RNDN); });
  }
  friend Number Pow(const Number& a, const Number& b) {
    return Make([&](mpfr_ptr r) { mpfr_pow(r, a.value_, b.value_, MPFR_RNDN); });
  }
  friend Number Log(const Number& a) {
    return Make([&](mpfr_ptr r) { mpfr_log(r, a.value_, MPFR_RNDN); });
  }
  friend Number Log2(const Number& a) {
    return Make([&](mpfr_ptr r) { mpfr_log2(r, a.value_, MPFR_RNDN); });
  }
  friend Number Exp(const Number& a) {
    return Make([&](mpfr_ptr r) { mpfr_exp(r, a.value_, MPFR_RNDN); });
  }
  friend Number Cos(const Number& a) {
    return Make([&](mpfr_ptr r) { mpfr_cos(r, a.value_, MPFR_RNDN); });
  }
  friend Number Sin(const Number& a) {
    return Make([&](mpfr_ptr r) { mpfr_sin(r, a.value_, MPFR_RNDN); });
  }
  friend Number Sqrt(const Number& a) {
    return Make([&](mpfr_ptr r) { mpfr_sqrt(r, a.value_, MPFR_RNDN); });
  }
  friend Number Floor(const Number& a) {
    return Make([&](mpfr_ptr r) { mpfr_floor(r, a.value_); });
  }
  friend Number Ceil(const Number& a) {
    return Make([&](mpfr_ptr r) { mpfr_ceil(r, a.value_); });
  }
  friend bool operator<(const Number& a, const Number& b) { return mpfr_less_p(a.value_, b.value_) != 0; }
  friend bool operator>(const Number& a, const Number& b) { return b < a; }
  friend bool operator==(const Number& a, const Number& b) { return mpfr_equal_p(a.value_, b.value_) != 0; }

 private:
  template <class Operation>
  static Number Make(const Operation& operation) {
    Number result;
    operation(result.value_);
    return result;
  }

  mpfr_t value_;
};

}  // namespace posenc::reference
