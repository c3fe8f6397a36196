#include "posenc/methods/bias/bias_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"
#include "posenc/exact/arithmetic.h"

namespace posenc {
namespace {

// Paper: (sum_k cos(n / base^(2k/dim)) - dim/2) / (8h/H), k = 1 .. dim/2. Snippet: k = 0 .. dim/2-1, and nothing is
// subtracted.
template <class A>
class SandwichFormula {
  using S = typename A::Scalar;
  using E = typename A::Element;

 public:
  explicit SandwichFormula(const SandwichSettings& s)
      : paper_(s.convention == SandwichConvention::kPaper), angle_bits_(std::max(0, -std::ilogb(*s.base))) {
    const RealPrecision of_angles(Real::Precision() + angle_bits_);
    const int64_t pairs = *s.dim / 2;
    for (int64_t k = 0; k < pairs; ++k) {
      const S exponent = S(2.0 * static_cast<double>(k + (paper_ ? 1 : 0))) / S(static_cast<double>(*s.dim));
      scales_.push_back(Pow(E(*s.base), E(exponent)));
    }
    for (int64_t h = 1; h <= s.num_heads; ++h) {
      ratios_.push_back(E(S(8.0 * static_cast<double>(h)) / S(static_cast<double>(s.num_heads))));
    }
  }

  std::vector<E> operator()(int64_t n) const {
    const E distance(static_cast<double>(n));
    E sum(0.0);
    {
      const RealPrecision of_angles(Real::Precision() + angle_bits_);
      for (const E& scale : scales_) sum = sum + Cos(distance / scale);
    }
    if (paper_) sum = sum - E(static_cast<double>(scales_.size()));
    std::vector<E> heads;
    for (const E& ratio : ratios_) heads.push_back(sum / ratio);
    return heads;
  }

 private:
  bool paper_;
  int angle_bits_;  // needed beyond the working precision: angles are up to n / base, their cosines at most 1
  std::vector<E> scales_, ratios_;
};

}  // namespace

absl::Status Complete(SandwichSettings& s, const Limits& limits) {
  if (s.num_heads < 1 || s.num_heads > limits.max_heads) {
    return InvalidArgument("OUT_OF_RANGE", "num_heads", fmt::format("{}", s.num_heads),
                           fmt::format("must be 1 .. {}", limits.max_heads));
  }
  if (!s.dim) s.dim = 128;
  constexpr int64_t kMaxDim = 1024;
  if (*s.dim < 2 || *s.dim % 2 != 0 || *s.dim > kMaxDim) {
    return InvalidArgument("OUT_OF_RANGE", "dim", fmt::format("{}", *s.dim),
                           fmt::format("must be even, 2 .. {}", kMaxDim));
  }
  if (!s.base) s.base = 10000.0;
  return CheckPositive("base", *s.base);
}

std::vector<float> SandwichValues(Frequencies arithmetic, const SandwichSettings& settings, int64_t first,
                                  int64_t count) {
  return EvaluateFloats<SandwichFormula>(arithmetic, settings, first, count);
}

}  // namespace posenc
