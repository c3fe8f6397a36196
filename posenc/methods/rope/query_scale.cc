#include "posenc/methods/rope/query_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/exact/arithmetic.h"

namespace posenc {
namespace {

// 1 + slope * log(1 + floor((p + offset) / length)): llama4 and ministral3.
struct Steps {
  double slope, length, offset;
};

std::optional<Steps> StepsOf(const QueryScale& scale) {
  switch (scale.function) {
    case QueryScaleFunction::kLlama4: return Steps{*scale.attn_scale, *scale.floor_scale, 1};
    case QueryScaleFunction::kMinistral3:
      return Steps{*scale.llama_4_scaling_beta, *scale.original_max_position_embeddings, 0};
    case QueryScaleFunction::kBeam:
    case QueryScaleFunction::kLogn:
    case QueryScaleFunction::kInkling: return std::nullopt;
  }
  __builtin_unreachable();
}

template <class F>
double StepIn(const Steps& steps, double position) {
  return std::floor((static_cast<F>(position) + static_cast<F>(steps.offset)) / static_cast<F>(steps.length));
}

double Step(Frequencies arithmetic, const Steps& steps, double position) {
  if (arithmetic == Frequencies::kFloat32) return StepIn<float>(steps, position);
  if (arithmetic == Frequencies::kFloat64) return StepIn<double>(steps, position);
  const bool whole = position == std::floor(position) && steps.length == std::floor(steps.length);
  if (whole && steps.length <= kLargestPosition) {
    const int64_t step =
        (static_cast<int64_t>(position) + static_cast<int64_t>(steps.offset)) / static_cast<int64_t>(steps.length);
    return static_cast<double>(step);
  }
  return NearestDouble(Floor((Real(position) + Real(steps.offset)) / Real(steps.length)));
}

// s(p) by the models' own code. `at`: the position, or the step if the function has steps.
template <class A>
typename A::Element Factor(const QueryScale& scale, double at) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const E one(1.0), p(at);
  if (const auto steps = StepsOf(scale)) return one + E(S(steps->slope)) * LogOnePlus(p);
  if (scale.function == QueryScaleFunction::kBeam) {
    return Exp(E(S(1.0) / S(10.0)) * LogOnePlus((p + one) / E(2048.0)));
  }
  const S length = S(at) + S(1.0);
  if (scale.function == QueryScaleFunction::kInkling) {
    const S floor(*scale.log_scaling_n_floor);
    return length > floor ? one + E(S(*scale.log_scaling_alpha)) * Log(E(length) / E(floor)) : one;
  }
  const S trained(*scale.seq_length);
  return length > trained ? E(Log(length) / Log(trained)) : one;
}

absl::Status CheckRange(std::string_view name, double value, double least, double most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", value),
                         fmt::format("must be {} .. {}", least, most == kLargestPosition ? "2^53" : "1000"));
}

}  // namespace

absl::Status Check(const QueryScale& scale) {
  using Function = QueryScaleFunction;
  struct Parameter {
    std::string_view name;
    const std::optional<double>& value;
    Function reader;
    double least, most;
  };
  constexpr double kMostSlope = 1000;
  for (const Parameter& p :
       {Parameter{"attn_scale", scale.attn_scale, Function::kLlama4, 0, kMostSlope},
        {"floor_scale", scale.floor_scale, Function::kLlama4, 1, kLargestPosition},
        {"llama_4_scaling_beta", scale.llama_4_scaling_beta, Function::kMinistral3, 0, kMostSlope},
        {"original_max_position_embeddings", scale.original_max_position_embeddings, Function::kMinistral3, 1,
         kLargestPosition},
        {"seq_length", scale.seq_length, Function::kLogn, 2, kLargestPosition},
        {"log_scaling_alpha", scale.log_scaling_alpha, Function::kInkling, 0, kMostSlope},
        {"log_scaling_n_floor", scale.log_scaling_n_floor, Function::kInkling, 1, kLargestPosition}}) {
    if (p.reader == scale.function) {
      if (!p.value) return InvalidArgument("MISSING", p.name, "", "must be given with this function");
      POSENC_RETURN_IF_ERROR(CheckRange(p.name, *p.value, p.least, p.most));
    } else if (p.value) {
      return Against("function", InvalidArgument("NOT_READ", p.name, fmt::format("{}", *p.value),
                                                 "must be absent with this function"));
    }
  }
  return absl::OkStatus();
}

std::vector<double> QueryFactors(Frequencies arithmetic, const QueryScale& scale, const std::vector<double>& positions,
                                 double multiplier, bool reciprocal) {
  const auto steps = StepsOf(scale);
  std::vector<double> factors;
  factors.reserve(positions.size());
  double last = -1;  // of the position before, or its step: neighbours often share a step
  for (const double position : positions) {
    const double at = steps ? Step(arithmetic, *steps, position) : position;
    if (at != last || factors.empty()) {
      InterruptionPoint();
      const auto formula = [&](auto a) {
        using E = typename decltype(a)::Element;
        const E factor = E(multiplier) * Factor<decltype(a)>(scale, at);
        return Values<decltype(a)>{{reciprocal ? E(1.0) / factor : factor}, {}};
      };
      factors.push_back(Evaluate(arithmetic, formula).list[0]);
      last = at;
    } else {
      factors.push_back(factors.back());
    }
  }
  return factors;
}

std::optional<double> FirstScaledPosition(const QueryScale& scale) {
  if (const auto steps = StepsOf(scale)) {
    if (steps->slope == 0) return std::nullopt;
    return std::ceil(steps->length) - steps->offset;
  }
  if (scale.function == QueryScaleFunction::kInkling) {
    if (scale.log_scaling_alpha == 0.0) return std::nullopt;
    return std::floor(*scale.log_scaling_n_floor);
  }
  return scale.function == QueryScaleFunction::kBeam ? 0 : std::floor(*scale.seq_length);
}

}  // namespace posenc
