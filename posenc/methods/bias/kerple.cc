#include "posenc/methods/bias/bias_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/status.h"
#include "posenc/exact/arithmetic.h"

namespace posenc {
namespace {

// KERPLE kernels of n = |distance|: -p ln(1 + a n), or -a n^p.
template <class A>
class KerpleFormula {
  using E = typename A::Element;

 public:
  explicit KerpleFormula(const KerpleSettings& s)
      : kernel_(s.kernel), a_(s.a.begin(), s.a.end()), p_(s.p.begin(), s.p.end()) {}

  std::vector<E> operator()(int64_t n) const {
    const E distance(static_cast<double>(n));
    std::vector<E> heads;
    for (size_t h = 0; h < a_.size(); ++h) {
      const E value =
          kernel_ == KerpleKernel::kLog ? p_[h] * Log(E(1.0) + a_[h] * distance) : a_[h] * Pow(distance, p_[h]);
      heads.push_back(E(0.0) - value);
    }
    return heads;
  }

 private:
  KerpleKernel kernel_;
  std::vector<E> a_, p_;
};

absl::Status ClampAll(std::string_view field, std::vector<double>& values, double most) {
  constexpr double kLeast = 0.01;
  for (size_t n = 0; n < values.size(); ++n) {
    if (!std::isfinite(static_cast<float>(values[n]))) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", field, n), fmt::format("{}", values[n]),
                             "must be finite in float32");
    }
    values[n] = std::clamp(values[n], kLeast, most);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Complete(KerpleSettings& s, const Limits& limits) {
  if (s.a.empty() || static_cast<int64_t>(s.a.size()) > limits.max_heads) {
    return InvalidArgument("OUT_OF_RANGE", "a", fmt::format("{} heads", s.a.size()),
                           fmt::format("must be 1 .. {}", limits.max_heads));
  }
  if (s.p.size() != s.a.size()) {
    return InvalidArgument("MISMATCH", "p", fmt::format("{} heads", s.p.size()),
                           fmt::format("must be {}, as in a", s.a.size()));
  }
  constexpr double kLargest = std::numeric_limits<float>::max();
  POSENC_RETURN_IF_ERROR(ClampAll("a", s.a, kLargest));
  return ClampAll("p", s.p, s.kernel == KerpleKernel::kPower ? 2.0 : kLargest);
}

std::vector<float> KerpleValues(Frequencies arithmetic, const KerpleSettings& settings, int64_t first, int64_t count) {
  return EvaluateFloats<KerpleFormula>(arithmetic, settings, first, count);
}

}  // namespace posenc
