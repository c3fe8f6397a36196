#include "posenc/methods/bias/forget_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

// Exponents of the lowest and the highest set bit of any of the numbers.
struct BitRange {
  int lowest = std::numeric_limits<int>::max();
  int highest = std::numeric_limits<int>::min();
};

BitRange BitsOf(const std::vector<float>& numbers) {
  BitRange range;
  constexpr int kMantissa = std::numeric_limits<float>::digits;
  int64_t steps = 0;
  for (const float number : numbers) {
    InterruptionPointOfStep(++steps);
    if (number == 0) continue;
    int exponent;
    const double mantissa = std::ldexp(std::abs(std::frexp(static_cast<double>(number), &exponent)), kMantissa);
    range.lowest = std::min(range.lowest, exponent - kMantissa + std::countr_zero(static_cast<uint32_t>(mantissa)));
    range.highest = std::max(range.highest, exponent - 1);
  }
  return range.highest < range.lowest ? BitRange{0, 0} : range;
}

// Bits that a sum of all of a row's gates can have, without its sign.
int SumBits(const BitRange& range, int64_t keys) {
  return range.highest - range.lowest + 1 + static_cast<int>(std::bit_width(static_cast<uint64_t>(keys)));
}

// Gates 1 .. j of each row added up, in units of 2^lowest_bit.
template <class Sum>
std::vector<Sum> AddUp(const ForgetGateSettings& settings, int lowest_bit) {
  std::vector<Sum> sums;
  sums.reserve(settings.log_gates.size());
  for (size_t n = 0; n < settings.log_gates.size(); ++n) {
    if (n % 4096 == 0) InterruptionPoint();
    if (n % settings.keys == 0) {
      sums.push_back(Sum(0));
    } else {
      const double gate = std::ldexp(static_cast<double>(settings.log_gates[n]), -lowest_bit);  // a whole number
      sums.push_back(sums.back() + static_cast<Sum>(gate));
    }
  }
  return sums;
}

// In the unit of Limits::max_bias_values. The gates are finite.
double CostOf(const ForgetGateSettings& settings) {
  constexpr double kByMpfr = 8;
  const bool wide = SumBits(BitsOf(settings.log_gates), settings.keys) > std::numeric_limits<__int128>::digits;
  return static_cast<double>(settings.log_gates.size()) * (wide ? kByMpfr : 1);
}

}  // namespace

absl::Status Complete(const ForgetGateSettings& s, const Limits& limits) {
  if (s.num_heads < 1 || s.num_heads > limits.max_heads) {
    return InvalidArgument("OUT_OF_RANGE", "log_gates.shape", fmt::format("{} heads", s.num_heads),
                           fmt::format("must be 1 .. {}", limits.max_heads));
  }
  POSENC_RETURN_IF_ERROR(CheckFinite("log_gates", s.log_gates));
  if (const double cost = CostOf(s); cost > static_cast<double>(limits.max_bias_values)) {
    return TooLarge("log_gates", fmt::format("{} values", cost),
                    fmt::format("must be at most {} (max_bias_values)", limits.max_bias_values));
  }
  for (size_t n = 0; n < s.log_gates.size(); ++n) {
    InterruptionPointOfStep(static_cast<int64_t>(n) + 1);
    if (s.log_gates[n] > 0) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("log_gates[{}]", n), fmt::format("{}", s.log_gates[n]),
                             "must be at most 0: the logarithm of a gate between 0 and 1");
    }
  }
  return s.cu_seqlens ? CheckSequenceBounds("cu_seqlens", *s.cu_seqlens, s.keys) : absl::OkStatus();
}

ForgetGateRows::ForgetGateRows(const ForgetGateSettings& settings)
    : heads_(settings.num_heads), keys_(settings.keys), shared_(!settings.batch) {
  const BitRange range = BitsOf(settings.log_gates);
  lowest_bit_ = range.lowest;
  bits_ = SumBits(range, keys_);
  if (bits_ <= std::numeric_limits<int64_t>::digits) {
    sums_ = AddUp<int64_t>(settings, lowest_bit_);
  } else if (bits_ <= std::numeric_limits<Int128>::digits) {
    sums_ = AddUp<Int128>(settings, lowest_bit_);
  } else {
    const RealPrecision precision(bits_);
    sums_ = AddUp<Real>(settings, lowest_bit_);
  }
}

void ForgetGateRows::Fill(int64_t b, int64_t head, int64_t query, float* row) const {
  const int64_t first = ((shared_ ? 0 : b) * heads_ + head) * keys_;
  const double unit = std::ldexp(1.0, lowest_bit_);
  if (const auto* reals = std::get_if<std::vector<Real>>(&sums_)) {
    const RealPrecision precision(bits_);
    for (int64_t j = 0; j <= query; ++j) {
      InterruptionPoint();
      row[j] = NearestFloat(((*reals)[first + query] - (*reals)[first + j]) * Real(unit));
    }
  } else {
    // The conversion to float32 is the only rounding: a sum below float32's normal numbers has at most 24 bits.
    const auto fill = [&](const auto& sums) {
      const auto* of_row = sums.data() + first;
      const auto sum = of_row[query];
      for (int64_t j = 0; j <= query; ++j) row[j] = static_cast<float>(static_cast<float>(sum - of_row[j]) * unit);
    };
    if (const auto* narrow = std::get_if<std::vector<int64_t>>(&sums_)) fill(*narrow);
    if (const auto* wide = std::get_if<std::vector<Int128>>(&sums_)) fill(*wide);
  }
  std::fill(row + query + 1, row + keys_, 0.0f);
}

}  // namespace posenc
