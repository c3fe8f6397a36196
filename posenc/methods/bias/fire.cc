#include "posenc/methods/bias/fire.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/exact/arithmetic.h"

namespace posenc {
namespace {

// Returns psi(x) = ln(|c x| + 1), plus `epsilon`, for each x of `at`.
std::vector<double> Psi(Frequencies arithmetic, const FireSettings& s, const std::vector<double>& at, double epsilon) {
  std::vector<double> psi;
  psi.reserve(at.size());
  constexpr size_t kBlock = 4096;  // bounds memory: a Real takes some hundred bytes
  for (size_t begin = 0; begin < at.size(); begin += kBlock) {
    const auto formula = [&](auto a) {
      using A = decltype(a);
      using E = typename A::Element;
      Values<A> values;
      for (size_t n = begin; n < std::min(begin + kBlock, at.size()); ++n) {
        const E product = E(std::abs(*s.c)) * E(std::abs(at[n]));
        values.list.push_back(LogOnePlus(product) + E(epsilon));
      }
      return values;
    };
    const std::vector<double> block = Evaluate(arithmetic, formula).list;
    psi.insert(psi.end(), block.begin(), block.end());
  }
  return psi;
}

absl::Status CheckSize(std::string_view field, size_t size, size_t expected) {
  if (size == expected) return absl::OkStatus();
  return InvalidArgument("MISMATCH", fmt::format("{}.shape", field), fmt::format("[{}]", size),
                         fmt::format("must be [{}] to match output_weight", expected));
}

}  // namespace

absl::Status Complete(FireSettings& s, const Limits& limits) {
  if (!s.c) return InvalidArgument("MISSING", "c", "", "must be given: it is learned (initially 0.1)");
  POSENC_RETURN_IF_ERROR(CheckFinite("c", *s.c));
  if (!s.threshold) {
    return InvalidArgument("MISSING", "threshold", "",
                           "must be given: |L_multiplier * L|, which is learned (initially 512)");
  }
  POSENC_RETURN_IF_ERROR(CheckPositive("threshold", *s.threshold));
  if (!s.epsilon) s.epsilon = 1e-6;
  if (!(std::isfinite(*s.epsilon) && *s.epsilon >= 0)) {
    return InvalidArgument("OUT_OF_RANGE", "epsilon", fmt::format("{}", *s.epsilon), "must be finite and at least 0");
  }
  if (!(std::abs(*s.c) * *s.threshold + *s.epsilon >= std::numeric_limits<double>::min())) {
    return InvalidArgument(
        "OUT_OF_RANGE", "c", fmt::format("{}", *s.c),
        fmt::format("must be larger: |c| * threshold + epsilon, with threshold {} and epsilon {}, must "
                    "be at least 2^-1022, because the bias divides by its logarithm",
                    *s.threshold, *s.epsilon));
  }
  const int64_t heads = s.output_weight.rows, width = s.output_weight.columns;
  if (heads < 1 || heads > limits.max_heads) {
    return InvalidArgument("OUT_OF_RANGE", "output_weight.shape", fmt::format("{} heads", heads),
                           fmt::format("must be 1 .. {}", limits.max_heads));
  }
  constexpr int64_t kMaxWidth = 1024;
  if (width < 1 || width > kMaxWidth) {
    return InvalidArgument("OUT_OF_RANGE", "output_weight.shape", fmt::format("{} hidden units", width),
                           fmt::format("must be 1 .. {}", kMaxWidth));
  }
  POSENC_RETURN_IF_ERROR(CheckSize("hidden_weight", s.hidden_weight.size(), width));
  POSENC_RETURN_IF_ERROR(CheckSize("hidden_bias", s.hidden_bias.size(), width));
  POSENC_RETURN_IF_ERROR(CheckSize("output_bias", s.output_bias.size(), heads));
  POSENC_RETURN_IF_ERROR(CheckFinite("hidden_weight", s.hidden_weight));
  POSENC_RETURN_IF_ERROR(CheckFinite("hidden_bias", s.hidden_bias));
  POSENC_RETURN_IF_ERROR(CheckFinite("output_weight", s.output_weight.values));
  return CheckFinite("output_bias", s.output_bias);
}

FireRows::FireRows(Frequencies arithmetic, const FireSettings& settings, int64_t farthest)
    : arithmetic_(arithmetic), settings_(settings) {
  std::vector<double> distances;
  for (int64_t n = 0; n <= farthest; ++n) distances.push_back(static_cast<double>(n));
  psi_ = Psi(arithmetic, settings, distances, 0);
}

std::vector<double> FireRows::Normalisers(const std::vector<double>& positions) const {
  int64_t steps = 0;
  // All positions up to the threshold share one. Logarithms are slow.
  std::vector<double> normalisers, distinct;
  normalisers.reserve(positions.size());
  for (const double position : positions) {
    InterruptionPointOfStep(++steps);
    normalisers.push_back(std::max(*settings_.threshold, position));
    if (distinct.empty() || distinct.back() != normalisers.back()) distinct.push_back(normalisers.back());
  }
  std::sort(distinct.begin(), distinct.end(), [&steps](double a, double b) {
    InterruptionPointOfStep(++steps);
    return a < b;
  });
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const std::vector<double> psi = Psi(arithmetic_, settings_, distinct, *settings_.epsilon);
  for (double& at : normalisers) {
    InterruptionPointOfStep(++steps);
    at = psi[std::lower_bound(distinct.begin(), distinct.end(), at) - distinct.begin()];
  }
  return normalisers;
}

void FireRows::Fill(int64_t head, double normaliser, double position, const double* keys, size_t count,
                    float* row) const {
  constexpr size_t kBlock = 4096;  // bounds memory
  constexpr size_t kFewKeys = 64;
  double x[kBlock], sums[kBlock];
  const float* weights = settings_.output_weight.row(head);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t keys_of_block = std::min(kBlock, count - begin);
    std::fill_n(sums, keys_of_block, 0.0);
    for (size_t j = 0; j < keys_of_block; ++j) {
      x[j] = psi_[static_cast<size_t>(std::abs(keys[begin + j] - position))] / normaliser;
      if (arithmetic_ == Frequencies::kFloat32) x[j] = static_cast<float>(x[j]);
    }
    const size_t units = std::max<size_t>(16, 65536 / keys_of_block);  // between points: some twenty microseconds
    // The outer loop runs over hidden units, so that the inner loops over keys have no dependencies and vectorize.
    for (size_t unit = 0; unit < settings_.hidden_bias.size(); ++unit) {
      if (unit % units == 0 && keys_of_block > kFewKeys) InterruptionPoint();
      const double slope = settings_.hidden_weight[unit], shift = settings_.hidden_bias[unit], weight = weights[unit];
      for (size_t j = 0; j < keys_of_block; ++j) sums[j] += weight * std::max(slope * x[j] + shift, 0.0);
    }
    for (size_t j = 0; j < keys_of_block; ++j) {
      row[begin + j] = static_cast<float>(sums[j] + settings_.output_bias[head]) + 0.0f;
    }
  }
}

}  // namespace posenc
