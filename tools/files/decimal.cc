#include "tools/files/decimal.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

namespace posenc {
namespace {

constexpr size_t kLongest = 40;  // bytes; enough for "-2.2250738585072014e-308"

bool AppendSpecial(double value, std::string* out) {
  if (std::isnan(value)) {
    out->append("\"NaN\"");
  } else if (std::isinf(value)) {
    out->append(value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
  } else if (value == 0) {
    out->append(std::signbit(value) ? "-0.0" : "0");
  } else {
    return false;
  }
  return true;
}

template <typename Float>
void AppendShortest(Float value, std::string* out) {
  if (AppendSpecial(value, out)) return;
  char buffer[kLongest];
  const auto end = std::to_chars(buffer, buffer + kLongest, value).ptr;
  out->append(buffer, end);
}

double HalfMagnitude(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  if (exponent == 0) return std::ldexp(fraction, -24);
  if (exponent == 0x1f) return fraction ? std::numeric_limits<double>::quiet_NaN() : HUGE_VAL;
  return std::ldexp(fraction | 0x400, exponent - 25);
}

double Bfloat16Magnitude(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits & 0x7fff) << 16); }

// `magnitude` maps 15 bits to their value and is monotonically increasing.
void AppendSixteenBits(uint16_t bits, double (*magnitude)(uint16_t), std::string* out) {
  const bool negative = bits & 0x8000;
  const uint16_t rest = bits & 0x7fff;
  const double value = magnitude(rest);
  if (AppendSpecial(negative ? -value : value, out)) return;
  const double below = value - magnitude(rest - 1);  // no underflow: AppendSpecial() handles zero
  const double above = std::isinf(magnitude(rest + 1)) ? below : magnitude(rest + 1) - value;
  if (negative) *out += '-';
  char buffer[kLongest];
  for (int digits = 1;; ++digits) {
    const auto end = std::to_chars(buffer, buffer + kLongest, value, std::chars_format::general, digits).ptr;
    double read = 0;
    std::from_chars(buffer, end, read);
    // A factor of 0.5 would reach the next value's rounding interval.
    if (read - value > 0.49 * above || value - read > 0.49 * below) continue;
    out->append(buffer, end);
    return;
  }
}

}  // namespace

void AppendDecimal(double value, std::string* out) { AppendShortest(value, out); }
void AppendDecimal(float value, std::string* out) { AppendShortest(value, out); }
void AppendHalfDecimal(uint16_t bits, std::string* out) { AppendSixteenBits(bits, HalfMagnitude, out); }
void AppendBfloat16Decimal(uint16_t bits, std::string* out) { AppendSixteenBits(bits, Bfloat16Magnitude, out); }

}  // namespace posenc
