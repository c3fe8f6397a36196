#include "posenc/diagnose/bias_candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "posenc/methods/bias/bias_methods.h"

namespace posenc::diagnose {
namespace {

struct Rule {
  AlibiSlopeRule rule;
  const char* name;
};
constexpr Rule kRules[] = {{AlibiSlopeRule::kPowerOfTwo, "the released code's slopes"},
                           {AlibiSlopeRule::kGeometric, "the paper's slopes 2^(-8(h+1)/H)"}};
// Numbers of heads of which these slopes may be a slice.
constexpr int64_t kHeads[] = {4, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 71, 80, 96, 112, 128};

std::vector<double> SlopesOf(AlibiSlopeRule rule, int64_t heads) {
  AlibiSettings settings{.num_heads = heads, .slopes = rule, .alibi_bias_max = 8};
  return AlibiSlopes(Frequencies::kExact, settings).values;
}

constexpr double kNear = 0x1p-6;

// Largest relative deviation of the slopes from `ratio` times those of the rule, from its head `start` on.
double Deviation(const std::vector<double>& slopes, const std::vector<double>& wanted, int64_t start, double ratio) {
  double most = 0;
  for (size_t h = 0; h < slopes.size(); ++h) {
    const double deviation = std::abs(slopes[h] / (ratio * wanted[start + h]) - 1);
    most = std::isnan(deviation) ? std::numeric_limits<double>::infinity() : std::max(most, deviation);
  }
  return most;
}

bool AreNear(const std::vector<double>& slopes, const std::vector<double>& wanted, int64_t start, double ratio) {
  return Deviation(slopes, wanted, start, ratio) < kNear;
}

// Returns "about " if the slopes are not exact, else "".
const char* About(double deviation) { return deviation < 0x1p-12 ? "" : "about "; }

std::string Compared(const std::vector<double>& slopes) {
  for (const auto& [rule, name] : kRules) {
    std::vector<double> wanted = SlopesOf(rule, static_cast<int64_t>(slopes.size()));
    const double ratio = slopes[0] / wanted[0];
    const double opposite = Deviation(slopes, wanted, 0, -1), scaled = Deviation(slopes, wanted, 0, ratio);
    if (opposite < kNear) return fmt::format(": {}{} with the wrong sign", About(opposite), name);
    if (slopes.size() > 1 && scaled < kNear) {
      const double step = std::exp2(8.0 / static_cast<double>(slopes.size()));  // ratio of adjacent heads' slopes
      const bool one_early = std::abs(ratio / step - 1) < kNear, one_late = std::abs(ratio * step - 1) < kNear;
      return fmt::format(": {}{:.6g} times {}{}", About(scaled), ratio, name,
                         one_early  ? ", as if exponents began one head too early"
                         : one_late ? ", as if exponents began one head too late"
                                    : "");
    }
    std::reverse(wanted.begin(), wanted.end());
    const double reversed = Deviation(slopes, wanted, 0, 1);
    if (slopes.size() > 1 && reversed < kNear) {
      return fmt::format(": {}{}, heads in reverse order", About(reversed), name);
    }
  }
  if (slopes.size() > 1) return "";
  // A single head may be any head of a model.
  for (const int64_t heads : {8, 12, 16, 32}) {
    const std::vector<double> wanted = SlopesOf(kRules[0].rule, heads);
    for (int64_t h = 0; h < heads; ++h) {
      if (AreNear(slopes, wanted, h, 1)) return fmt::format(", as in head {} of {} of {}", h, heads, kRules[0].name);
    }
  }
  return "";
}

}  // namespace

Matrix<double> AsMatrix(const std::vector<double>& slopes) {
  Matrix<double> matrix;
  matrix.values = slopes;
  matrix.columns = static_cast<int64_t>(slopes.size());
  return matrix;
}

std::vector<NamedSlopes> ByRule(const std::vector<double>& slopes) {
  const auto count = static_cast<int64_t>(slopes.size());
  std::vector<NamedSlopes> found;
  std::vector<std::vector<double>> known;
  for (const auto& [rule, name] : kRules) {
    const std::vector<double> wanted = SlopesOf(rule, count);
    if (!AreNear(slopes, wanted, 0, 1) || std::find(known.begin(), known.end(), wanted) != known.end()) continue;
    known.push_back(wanted);
    found.push_back({count, 0, rule, name});
  }
  if (!found.empty() || count == 1) return found;
  for (const auto& [rule, name] : kRules) {
    for (const int64_t heads : kHeads) {
      if (heads <= count) continue;
      const std::vector<double> wanted = SlopesOf(rule, heads);
      for (int64_t start = 0; start + count <= heads; ++start) {
        if (!AreNear(slopes, wanted, start, 1)) continue;
        found.push_back(
            {heads, start, rule, fmt::format("{}, heads {} .. {} of {}", name, start, start + count - 1, heads)});
        return found;
      }
    }
  }
  return found;
}

NamedSlopes AsTheyAre(const std::vector<double>& slopes) {
  std::vector<double> own = slopes;
  for (double& slope : own) slope = static_cast<float>(slope);
  const auto count = static_cast<int64_t>(own.size());
  const std::string values = count == 1 ? fmt::format("a slope of its own, {}", static_cast<float>(own[0]))
                                        : fmt::format("slopes of its own, {} .. {}", static_cast<float>(own.front()),
                                                      static_cast<float>(own.back()));
  return {count, 0, GivenSlopes{AsMatrix(own)}, values + Compared(slopes)};
}

}  // namespace posenc::diagnose
