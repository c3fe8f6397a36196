#include "posenc/methods/relative/relative_methods.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/exact/arithmetic.h"

namespace posenc {
namespace {

// Returns psi(n / a) for each scale a. Beyond |n / a| = 64 every wavelet is 0 in float32, and real arithmetic is slow
// there.
template <class A>
class WaveletFormula {
  using E = typename A::Element;

 public:
  explicit WaveletFormula(const WprSettings& s) : s_(s) {}

  std::vector<E> operator()(int64_t n) const {
    std::vector<E> values;
    for (int64_t scale = 0; scale < *s_.scales; ++scale) {
      const double u = std::ldexp(static_cast<double>(n), -static_cast<int>(*s_.first_exponent + scale));  // exact
      values.push_back(std::abs(u) > 64 ? E(0.0) : Psi(E(u), u));
    }
    return values;
  }

 private:
  E Psi(const E& u, double plain) const {
    switch (s_.wavelet) {
      case Wavelet::kRicker: return (E(1.0) - u * u) * Exp(E(0.0) - u * u / E(2.0));
      case Wavelet::kGaussian: return Exp(E(0.0) - u * u);
      case Wavelet::kMorlet: return Exp(E(0.0) - u * u) * Cos(E(*s_.morlet_frequency) * u);
      case Wavelet::kHaar: return E(plain < 0 || plain >= 1 ? 0.0 : plain < 0.5 ? 1.0 : -1.0);
    }
    __builtin_unreachable();
  }

  const WprSettings& s_;
};

// First and last n = query - key, or key - query for kKeyMinusQuery.
struct Range {
  int64_t first, last;
};
Range RangeOf(const WprSettings& s, const Distances& distances) {
  const auto first = static_cast<int64_t>(distances.first), last = static_cast<int64_t>(distances.last);
  return s.distance == WprDistance::kKeyMinusQuery ? Range{first, last} : Range{-last, -first};
}

}  // namespace

absl::Status Complete(WprSettings& s, const RelativeShape& shape, const Limits&) {
  if (!s.scales) s.scales = 8;
  if (*s.scales < 1 || shape.head_dim % *s.scales != 0) {
    return InvalidArgument("MISMATCH", "scales", fmt::format("{}", *s.scales),
                           fmt::format("must divide head_dim = {}", shape.head_dim));
  }
  constexpr int64_t kMost = 32;
  if (!s.first_exponent) s.first_exponent = 0;
  if (*s.first_exponent < -kMost || *s.first_exponent > kMost || *s.first_exponent + *s.scales > 2 * kMost) {
    return InvalidArgument("OUT_OF_RANGE", "first_exponent", fmt::format("{}", *s.first_exponent),
                           fmt::format("must be -{} .. {}, and the last exponent below {}", kMost, kMost, 2 * kMost));
  }
  const bool morlet = s.wavelet == Wavelet::kMorlet;
  if (morlet && !s.morlet_frequency) {
    return InvalidArgument("MISSING", "morlet_frequency", "", "must be given: c in exp(-u^2) cos(c u)");
  }
  if (!morlet && s.morlet_frequency) {
    return InvalidArgument("NOT_READ", "morlet_frequency", fmt::format("{}", *s.morlet_frequency),
                           "must be absent without WAVELET_MORLET");
  }
  if (morlet && !std::isfinite(*s.morlet_frequency)) {
    return InvalidArgument("OUT_OF_RANGE", "morlet_frequency", fmt::format("{}", *s.morlet_frequency),
                           "must be finite");
  }
  return absl::OkStatus();
}

absl::Status CheckPositions(const WprSettings& s, const RelativeShape& shape, const Limits& limits) {
  const double rows = shape.distances.last - shape.distances.first + 1;
  const double values = (rows + static_cast<double>(shape.head_dim)) * static_cast<double>(*s.scales);
  if (values > static_cast<double>(limits.max_bias_values)) {
    return TooLarge("scales", fmt::format("{} distances: {} values", rows, values),
                    fmt::format("must be at most {} (max_bias_values)", limits.max_bias_values));
  }
  return CheckTableSize("scales", rows, shape.head_dim, limits);
}

absl::StatusOr<RelativeTables> MakeTables(const WprSettings& s, const RelativeShape& shape, Frequencies arithmetic,
                                          WorkPool&, const Cancellation&) {
  const auto [first, last] = RangeOf(s, shape.distances);
  const int64_t scales = *s.scales, shifts = shape.head_dim / scales, rows = last - first + 1;
  // All shifts b of one scale share one list of values, indexed by n - b.
  const int64_t least = first - (shifts - 1);
  const std::vector<float> values = EvaluateFloats<WaveletFormula>(arithmetic, s, least, rows + shifts - 1);
  HeadTable table{.rows = rows, .stride = shape.head_dim, .dim = shape.head_dim};
  table.values.reserve(rows * shape.head_dim);
  const bool by_shift = s.channels == WprChannels::kShiftFastest;
  for (int64_t n = first; n <= last; ++n) {
    for (int64_t channel = 0; channel < shape.head_dim; ++channel) {
      const int64_t b = by_shift ? channel % shifts : channel / scales;
      const int64_t scale = by_shift ? channel / shifts : channel % scales;
      InterruptionPointOfStep(static_cast<int64_t>(table.values.size()));
      table.values.push_back(values[(n - b - least) * scales + scale]);
    }
  }
  RelativeTables tables;
  tables.of_query = std::move(table);
  for (int64_t n = 0; n < rows; ++n) {  // in ascending order of key - query
    tables.row_of_distance.push_back(
        static_cast<int32_t>(s.distance == WprDistance::kKeyMinusQuery ? n : rows - 1 - n));
  }
  return tables;
}

}  // namespace posenc
