#include "posenc/methods/bias/bias_methods.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "posenc/base/status.h"

namespace posenc {
namespace {

// Computes one slope per head by the slope rule.
template <class A>
class RuleFormula {
  using S = typename A::Scalar;
  using E = typename A::Element;

 public:
  explicit RuleFormula(const AlibiSettings& s)
      : rule_(std::get<AlibiSlopeRule>(s.slopes)),
        heads_(s.num_heads),
        base_(Base(s, rule_ == AlibiSlopeRule::kGeometric ? heads_ : Below())),
        extra_base_(Base(s, 2 * Below())),
        step_(S(*s.alibi_bias_max) / S(static_cast<double>(Above()))) {}

  std::vector<E> operator()(int64_t head) const {
    switch (rule_) {
      case AlibiSlopeRule::kGeometric: return {Power(base_, head + 1)};
      case AlibiSlopeRule::kPowerOfTwo:
        // If H is not a power of two: the slopes of the power of two c below H, then every other slope of 2c.
        return {head < Below() ? Power(base_, head + 1) : Power(extra_base_, 2 * (head - Below()) + 1)};
      case AlibiSlopeRule::kMpt: {
        // MPT's formula for the smallest power of two c >= H: 1 / 2^(n * (bias_max/c)), with n = head + 1 if H = c,
        // else n = 2, 4, ... c, then 1, 3, ...
        const int64_t c = Above(), n = heads_ == c ? head + 1 : head < c / 2 ? 2 * (head + 1) : 2 * (head - c / 2) + 1;
        return {E(1.0) / Pow(E(2.0), E(static_cast<double>(n)) * step_)};
      }
    }
    __builtin_unreachable();
  }

 private:
  // BLOOM's order of operations: the base is rounded to the tensor's type before its powers are taken.
  static E Base(const AlibiSettings& s, int64_t c) {
    return E(Pow(S(2.0), S(0.0) - S(*s.alibi_bias_max) / S(static_cast<double>(c))));
  }
  static E Power(const E& base, int64_t n) { return Pow(base, E(static_cast<double>(n))); }
  int64_t Below() const { return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads_))); }
  int64_t Above() const { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(heads_))); }

  AlibiSlopeRule rule_;
  int64_t heads_;
  E base_, extra_base_, step_;
};

// Computes one learned slope per head, exp(log_slope).
template <class A>
class ExpFormula {
 public:
  explicit ExpFormula(const std::vector<double>& log_slopes) : log_slopes_(log_slopes) {}
  std::vector<typename A::Element> operator()(int64_t head) const {
    return {Exp(typename A::Element(log_slopes_[head]))};
  }

 private:
  const std::vector<double>& log_slopes_;
};

template <template <class> class Formula, class Settings>
Matrix<double> Slopes(Frequencies arithmetic, const Settings& settings, int64_t heads) {
  const std::vector<float> slopes = EvaluateFloats<Formula>(arithmetic, settings, 0, heads);
  return {{slopes.begin(), slopes.end()}, 1, heads, true};
}

absl::Status CheckHeads(std::string_view name, const Matrix<double>& m, int64_t heads, bool batched) {
  if (m.columns != heads || (!m.shared && !batched)) {
    return InvalidArgument("MISMATCH", fmt::format("{}.shape", name),
                           m.shared ? fmt::format("[{}]", m.columns) : fmt::format("[{}, {}]", m.rows, m.columns),
                           fmt::format("must be [num_heads] = [{}]{}", heads, batched ? " or [B, num_heads]" : ""));
  }
  for (size_t n = 0; n < m.values.size(); ++n) {
    if (!std::isfinite(static_cast<float>(m.values[n]))) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", name, n), fmt::format("{}", m.values[n]),
                             "must be finite in float32");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Complete(AlibiSettings& s, const Limits& limits) {
  if (s.num_heads < 1 || s.num_heads > limits.max_heads) {
    return InvalidArgument("OUT_OF_RANGE", "num_heads", fmt::format("{}", s.num_heads),
                           fmt::format("must be 1 .. {}", limits.max_heads));
  }
  if (std::holds_alternative<std::monostate>(s.slopes)) {
    return InvalidArgument("MISSING", "slopes", "", "must be given: rule, given or log_slopes");
  }
  const bool by_rule = std::holds_alternative<AlibiSlopeRule>(s.slopes);
  if (s.alibi_bias_max && !by_rule) {
    return InvalidArgument("NOT_READ", "alibi_bias_max", "", "must be absent without a slope rule");
  }
  if (by_rule && !s.alibi_bias_max) s.alibi_bias_max = 8.0;
  if (by_rule && !(std::isfinite(*s.alibi_bias_max) && *s.alibi_bias_max > 0)) {
    return InvalidArgument("OUT_OF_RANGE", "alibi_bias_max", fmt::format("{}", *s.alibi_bias_max),
                           "must be finite and above 0");
  }
  if (const auto* given = std::get_if<GivenSlopes>(&s.slopes)) {
    if (const auto values = static_cast<int64_t>(given->slopes.values.size()); values > limits.max_bias_values) {
      return TooLarge("given", fmt::format("{} slopes", values),
                      fmt::format("must be at most {} (max_bias_values)", limits.max_bias_values));
    }
    POSENC_RETURN_IF_ERROR(CheckHeads("given", given->slopes, s.num_heads, true));
  }
  if (const auto* logs = std::get_if<LogSlopes>(&s.slopes)) {
    POSENC_RETURN_IF_ERROR(CheckHeads("log_slopes", logs->log_slopes, s.num_heads, false));
    for (size_t n = 0; n < logs->log_slopes.values.size(); ++n) {
      constexpr double kLargest = 88;  // exp(88) is finite in float32
      if (logs->log_slopes.values[n] > kLargest) {
        return InvalidArgument("OUT_OF_RANGE", fmt::format("log_slopes[{}]", n),
                               fmt::format("{}", logs->log_slopes.values[n]), "must be at most 88");
      }
    }
  }
  if (s.form == AlibiForm::kAsymmetric) {
    if (!s.future_slopes) {
      return InvalidArgument("MISSING", "future_slopes", "", "must be given with ALIBI_FORM_ASYMMETRIC");
    }
    POSENC_RETURN_IF_ERROR(CheckHeads("future_slopes", *s.future_slopes, s.num_heads, false));
  } else if (s.future_slopes) {
    return InvalidArgument("NOT_READ", "future_slopes", "", "must be absent: only ALIBI_FORM_ASYMMETRIC reads it");
  }
  if (s.position_mask && s.form != AlibiForm::kBloom) {
    return InvalidArgument("NOT_READ", "position_mask", "", "must be absent: only ALIBI_FORM_BLOOM reads it");
  }
  if (s.bias_dtype && *s.bias_dtype != DType::kFP32 && *s.bias_dtype != DType::kFP16 && *s.bias_dtype != DType::kBF16) {
    return InvalidArgument("UNSUPPORTED", "bias_dtype", Name(*s.bias_dtype), "must be FP32, FP16 or BF16");
  }
  return absl::OkStatus();
}

Matrix<double> AlibiSlopes(Frequencies arithmetic, const AlibiSettings& s) {
  if (std::holds_alternative<AlibiSlopeRule>(s.slopes)) return Slopes<RuleFormula>(arithmetic, s, s.num_heads);
  if (const auto* logs = std::get_if<LogSlopes>(&s.slopes)) {
    return Slopes<ExpFormula>(arithmetic, logs->log_slopes.values, s.num_heads);
  }
  Matrix<double> slopes = std::get<GivenSlopes>(s.slopes).slopes;
  for (double& slope : slopes.values) slope = static_cast<float>(slope);
  return slopes;
}

}  // namespace posenc
