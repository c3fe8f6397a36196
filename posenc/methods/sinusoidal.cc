#include "posenc/methods/sinusoidal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/methods/rope.h"
#include "posenc/status.h"

namespace posenc {
namespace {

// What a convention may add to positions; the sum is one in float64.
constexpr int64_t kLargestShift = int64_t{1} << 52;

template <class A>
Values<A> PaperFormula(const SinusoidalSettings& settings) {
  using E = typename A::Element;
  Values<A> values;
  values.list = ThetaPowers<A>(E(*settings.max_timescale), settings.dim);
  for (E& w : values.list) w = E(1.0) / w;
  return values;
}

template <class A>
Values<A> Tensor2TensorFormula(const SinusoidalSettings& settings) {
  using S = typename A::Scalar;
  using E = typename A::Element;
  const int64_t half = settings.dim / 2;
  const S range = Log(S(*settings.max_timescale) / S(*settings.min_timescale));
  const E step(S(0.0) - range / S(static_cast<double>(std::max<int64_t>(half - 1, 1))));
  Values<A> values;
  for (int64_t k = 0; k < half; ++k) {
    values.list.push_back(E(*settings.min_timescale) * Exp(E(static_cast<double>(k)) * step));
  }
  return values;
}

absl::Status CheckTimescale(std::string_view name, double value) {
  if (std::isfinite(value) && value > 0) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", name, fmt::format("{}", value), "must be finite and above 0");
}

absl::Status NotRead(std::string_view name, std::string_view convention) {
  return InvalidArgument("NOT_READ", name, "", fmt::format("is for {} only", convention));
}

}  // namespace

absl::Status Complete(SinusoidalSettings& s) {
  const bool fairseq = s.convention == SinusoidalConvention::kFairseq;
  const bool tensor2tensor = s.convention == SinusoidalConvention::kTensor2Tensor;
  if (!tensor2tensor && s.min_timescale) return NotRead("min_timescale", "SINUSOIDAL_CONVENTION_TENSOR2TENSOR");
  if (!tensor2tensor && s.start_index != 0) return NotRead("start_index", "SINUSOIDAL_CONVENTION_TENSOR2TENSOR");
  if (!fairseq && s.padding_idx) return NotRead("padding_idx", "SINUSOIDAL_CONVENTION_FAIRSEQ");
  if (!fairseq && s.token_valid) return NotRead("token_valid", "SINUSOIDAL_CONVENTION_FAIRSEQ");
  const int64_t least = fairseq ? 4 : tensor2tensor ? 1 : 2;
  const bool even = !fairseq && !tensor2tensor;
  if (s.dim < least || (even && s.dim % 2 != 0)) {
    return InvalidArgument("OUT_OF_RANGE", "dim", fmt::format("{}", s.dim),
                           fmt::format("must be at least {}{}", least, even ? " and even" : ""));
  }
  if (fairseq && (!s.padding_idx || *s.padding_idx < 0 || *s.padding_idx > kLargestShift)) {
    return InvalidArgument(s.padding_idx ? "OUT_OF_RANGE" : "MISSING", "padding_idx",
                           s.padding_idx ? fmt::format("{}", *s.padding_idx) : "",
                           "SINUSOIDAL_CONVENTION_FAIRSEQ needs the padding token's row, 0 .. 2^52");
  }
  if (s.start_index < -kLargestShift || s.start_index > kLargestShift) {
    return InvalidArgument("OUT_OF_RANGE", "start_index", fmt::format("{}", s.start_index),
                           "must be at most 2^52 in magnitude");
  }
  if (!s.max_timescale) s.max_timescale = 10000.0;
  if (!s.min_timescale) s.min_timescale = 1.0;
  if (!s.scale) s.scale = 1.0;
  POSENC_RETURN_IF_ERROR(CheckTimescale("max_timescale", *s.max_timescale));
  POSENC_RETURN_IF_ERROR(CheckTimescale("min_timescale", *s.min_timescale));
  if (!std::isfinite(*s.scale)) {
    return InvalidArgument("OUT_OF_RANGE", "scale", fmt::format("{}", *s.scale), "must be finite");
  }
  return absl::OkStatus();
}

std::vector<double> SinusoidalFrequencies(Frequencies arithmetic, const SinusoidalSettings& settings) {
  switch (settings.convention) {
    case SinusoidalConvention::kInterleaved:
    case SinusoidalConvention::kHalves:
      return Evaluate(arithmetic, [&](auto a) { return PaperFormula<decltype(a)>(settings); }).list;
    case SinusoidalConvention::kTensor2Tensor:
    case SinusoidalConvention::kFairseq:
      return Evaluate(arithmetic, [&](auto a) { return Tensor2TensorFormula<decltype(a)>(settings); }).list;
  }
  __builtin_unreachable();
}

}  // namespace posenc
