#include "posenc/methods/alibi.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "posenc/status.h"

namespace posenc {
namespace {

// BLOOM's chain: a base rounded to the tensor's type, then its powers. `c` slopes of exponents step, 2 step, ...
template <class A>
void AppendPowers(double bias_max, int64_t c, int64_t first, int64_t step, int64_t count,
                  std::vector<typename A::Element>& slopes) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const E base(Pow(S(2.0), S(0.0) - S(bias_max) / S(static_cast<double>(c))));
  for (int64_t n = 0; n < count; ++n) slopes.push_back(Pow(base, E(static_cast<double>(first + n * step))));
}

// For H no power of two: the slopes of the power of two c below, then every other one of 2c.
template <class A>
Values<A> PowerOfTwoFormula(const AlibiSettings& settings) {
  const int64_t c = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(settings.num_heads)));
  Values<A> values;
  AppendPowers<A>(*settings.alibi_bias_max, c, 1, 1, c, values.list);
  AppendPowers<A>(*settings.alibi_bias_max, 2 * c, 1, 2, settings.num_heads - c, values.list);
  return values;
}

template <class A>
Values<A> GeometricFormula(const AlibiSettings& settings) {
  Values<A> values;
  AppendPowers<A>(*settings.alibi_bias_max, settings.num_heads, 1, 1, settings.num_heads, values.list);
  return values;
}

// MPT's chain, for the power of two c >= H: 1 / 2^(n * (bias_max/c)), n = 2, 4, ... c, then 1, 3, ...
template <class A>
Values<A> MptFormula(const AlibiSettings& settings) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const int64_t heads = settings.num_heads;
  const int64_t c = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(heads)));
  const E step(S(*settings.alibi_bias_max) / S(static_cast<double>(c)));
  Values<A> values;
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t n = heads == c ? h + 1 : h < c / 2 ? 2 * (h + 1) : 2 * (h - c / 2) + 1;
    values.list.push_back(E(1.0) / Pow(E(2.0), E(static_cast<double>(n)) * step));
  }
  return values;
}

template <class A>
Values<A> ExpFormula(const std::vector<double>& log_slopes) {
  using E = typename A::Element;
  Values<A> values;
  for (double x : log_slopes) values.list.push_back(Exp(E(x)));
  return values;
}

constexpr int kFloat32Digits = 24;

std::vector<double> RuleSlopes(Frequencies arithmetic, AlibiSlopeRule rule, const AlibiSettings& settings) {
  const auto formula = [&](auto a) {
    using A = decltype(a);
    switch (rule) {
      case AlibiSlopeRule::kPowerOfTwo: return PowerOfTwoFormula<A>(settings);
      case AlibiSlopeRule::kGeometric: return GeometricFormula<A>(settings);
      case AlibiSlopeRule::kMpt: return MptFormula<A>(settings);
    }
    __builtin_unreachable();
  };
  return Evaluate(arithmetic, formula, kFloat32Digits).list;
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
    return InvalidArgument("MISSING", "slopes", "", "has no default: give rule, given or log_slopes");
  }
  const bool by_rule = std::holds_alternative<AlibiSlopeRule>(s.slopes);
  if (s.alibi_bias_max && !by_rule) {
    return InvalidArgument("NOT_READ", "alibi_bias_max", "", "is read with a slope rule only");
  }
  if (by_rule && !s.alibi_bias_max) s.alibi_bias_max = 8.0;
  if (by_rule && !(std::isfinite(*s.alibi_bias_max) && *s.alibi_bias_max > 0)) {
    return InvalidArgument("OUT_OF_RANGE", "alibi_bias_max", fmt::format("{}", *s.alibi_bias_max),
                           "must be finite and above 0");
  }
  if (const auto* given = std::get_if<GivenSlopes>(&s.slopes)) {
    POSENC_RETURN_IF_ERROR(CheckHeads("given", given->slopes, s.num_heads, true));
  }
  if (const auto* logs = std::get_if<LogSlopes>(&s.slopes)) {
    POSENC_RETURN_IF_ERROR(CheckHeads("log_slopes", logs->log_slopes, s.num_heads, false));
    for (size_t n = 0; n < logs->log_slopes.values.size(); ++n) {
      constexpr double kLargest = 88;  // exp of it is still a float32
      if (logs->log_slopes.values[n] > kLargest) {
        return InvalidArgument("OUT_OF_RANGE", fmt::format("log_slopes[{}]", n),
                               fmt::format("{}", logs->log_slopes.values[n]), "must be at most 88");
      }
    }
  }
  if (s.form == AlibiForm::kAsymmetric) {
    if (!s.future_slopes) {
      return InvalidArgument("MISSING", "future_slopes", "", "is required by ALIBI_FORM_ASYMMETRIC");
    }
    POSENC_RETURN_IF_ERROR(CheckHeads("future_slopes", *s.future_slopes, s.num_heads, false));
  } else if (s.future_slopes) {
    return InvalidArgument("NOT_READ", "future_slopes", "", "is read by ALIBI_FORM_ASYMMETRIC only");
  }
  if (s.position_mask && s.form != AlibiForm::kBloom) {
    return InvalidArgument("NOT_READ", "position_mask", "", "is read by ALIBI_FORM_BLOOM only");
  }
  if (s.bias_dtype && *s.bias_dtype != DType::kFP32 && *s.bias_dtype != DType::kFP16 && *s.bias_dtype != DType::kBF16) {
    return InvalidArgument("UNSUPPORTED", "bias_dtype", Name(*s.bias_dtype), "must be FP32, FP16 or BF16");
  }
  return absl::OkStatus();
}

Matrix<double> AlibiSlopes(Frequencies arithmetic, const AlibiSettings& s) {
  if (const auto* rule = std::get_if<AlibiSlopeRule>(&s.slopes)) {
    return {RuleSlopes(arithmetic, *rule, s), 1, s.num_heads, true};
  }
  if (const auto* logs = std::get_if<LogSlopes>(&s.slopes)) {
    const auto formula = [&](auto a) { return ExpFormula<decltype(a)>(logs->log_slopes.values); };
    return {Evaluate(arithmetic, formula, kFloat32Digits).list, 1, s.num_heads, true};
  }
  Matrix<double> slopes = std::get<GivenSlopes>(s.slopes).slopes;
  for (double& slope : slopes.values) slope = static_cast<float>(slope);
  return slopes;
}

}  // namespace posenc
