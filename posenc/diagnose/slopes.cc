// ALiBi's slopes: the rule that gave them, and how they differ from those that are wanted.
#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "posenc/base/interruption.h"
#include "posenc/diagnose/bias_candidates.h"
#include "posenc/kernels/convert.h"
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

// Relative deviation of a slope that is rounding, of values to the compared type or of powers in float32.
double NearSlope(DType dtype) { return dtype == DType::kBF16 ? 0x1p-7 : dtype == DType::kFP16 ? 0x1p-9 : 0x1p-18; }

bool AllNear(const std::vector<double>& found, const std::vector<double>& wanted, double ratio, double tolerance) {
  for (size_t h = 0; h < found.size(); ++h) {
    if (!(std::fabs(found[h] / (ratio * wanted[h]) - 1) <= tolerance)) return false;
  }
  return true;
}

// The narrower type to which the slopes were rounded, if they were.
std::optional<DType> RoundedSlopes(const std::vector<double>& found, const std::vector<double>& wanted) {
  for (const DType dtype : {DType::kBF16, DType::kFP16}) {
    bool rounded = true;
    for (size_t h = 0; h < found.size(); ++h) {
      rounded &= static_cast<float>(found[h]) == RoundedTo(dtype, wanted[h]);
    }
    if (rounded) return dtype;
  }
  return std::nullopt;
}

// For each head the first head whose slope it has; empty if one has none of them.
std::vector<size_t> Order(const std::vector<double>& found, const std::vector<double>& wanted, double tolerance) {
  std::vector<size_t> order;
  for (const double slope : found) {
    InterruptionPoint();
    const auto near = [&](double other) { return std::fabs(slope / other - 1) <= tolerance; };
    const auto at = std::find_if(wanted.begin(), wanted.end(), near);
    if (at == wanted.end()) return {};
    order.push_back(at - wanted.begin());
  }
  return order;
}

// Exponents in proportion: 2^(-m (h + 1) / H) with another m. Returns m over the wanted one; 1 if there is none.
double Proportion(const std::vector<double>& found, const std::vector<double>& wanted, double tolerance) {
  const double power = Snap(std::log(found.back()) / std::log(wanted.back()), 1e-3);
  if (!std::isfinite(power) || std::fabs(power - 1) <= 1e-3 || found.size() < 2) return 1;
  for (size_t h = 0; h < found.size(); ++h) {
    if (!(std::fabs(found[h] / std::pow(wanted[h], power) - 1) <= tolerance)) return 1;
  }
  return power;
}

// Returns the known change that turns the wanted slopes into the found ones; absent if there is none. `head`: the index
// of the first slope; `bias_max`: the wanted alibi_bias_max.
std::optional<FittedFault> Change(const std::vector<double>& found, const std::vector<double>& wanted, int64_t head,
                                  double bias_max, DType dtype) {
  const auto count = static_cast<double>(found.size());
  const double tolerance = NearSlope(dtype);
  if (AllNear(found, wanted, -1, tolerance)) return FittedFault::Of("SIGN", "slopes have the wrong sign");
  if (const auto narrow = RoundedSlopes(found, wanted)) {
    return FittedFault::Of("ROUNDING", fmt::format("slopes were rounded to {}", Name(*narrow)));
  }
  double ratio = 0;  // of all heads, which are better known together
  for (size_t h = 0; h < found.size(); ++h) ratio += found[h] / wanted[h] / count;
  const std::string factor = Short(Snap(std::fabs(ratio) < 1 ? 1 / ratio : ratio, tolerance / 4));
  if (found.size() > 1 && factor != "1" && AllNear(found, wanted, ratio, tolerance)) {
    const double step = wanted[0] / wanted[1];  // ratio of adjacent heads' slopes
    const char* why = std::fabs(ratio / step - 1) < tolerance   ? ", as if exponents began one head too early"
                      : std::fabs(ratio * step - 1) < tolerance ? ", as if exponents began one head too late"
                                                                : "";
    const char* what = std::fabs(ratio) < 1 ? "divided" : "multiplied";
    return FittedFault::Of("SCALE", fmt::format("slopes were {} by {}{}", what, factor, why), 1);
  }
  if (const double power = Proportion(found, wanted, tolerance); power != 1) {
    return FittedFault::Of("SLOPES",
                           fmt::format("exponents of the slopes were multiplied by {}, as by an alibi_bias_max of {} "
                                       "instead of {}",
                                       Short(power), Short(Snap(bias_max * power, 1e-3)), Short(bias_max)),
                           1);
  }
  if (const std::vector<size_t> order = Order(found, wanted, tolerance); !order.empty() && !IsIdentity(order)) {
    return FittedFault::Of("SLOPES", DescribeOrder("slopes", order, head));
  }
  return std::nullopt;
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
    if (!AreAlike(slopes, wanted) || std::find(known.begin(), known.end(), wanted) != known.end()) continue;
    known.push_back(wanted);
    found.push_back({count, 0, rule, name});
  }
  if (!found.empty() || count == 1) return found;
  for (const auto& [rule, name] : kRules) {
    for (const int64_t heads : kHeads) {
      if (heads <= count) continue;
      const std::vector<double> wanted = SlopesOf(rule, heads);
      for (int64_t start = 0; start + count <= heads; ++start) {
        if (!AreAlike(slopes, {wanted.begin() + start, wanted.begin() + start + count})) continue;
        found.push_back(
            {heads, start, rule, fmt::format("{}, heads {} .. {} of {}", name, start, start + count - 1, heads)});
        return found;
      }
    }
  }
  return found;
}

NamedSlopes AsTheyAre(const std::vector<double>& slopes, DType dtype) {
  std::vector<double> own = slopes;
  for (double& slope : own) slope = static_cast<float>(slope);
  const auto count = static_cast<int64_t>(own.size());
  std::string words =
      fmt::format("slopes of its own, {} .. {}", static_cast<float>(own.front()), static_cast<float>(own.back()));
  if (count == 1) words = fmt::format("a slope of its own, {}", static_cast<float>(own[0]));
  for (const auto& [rule, name] : kRules) {
    const auto change = Change(slopes, SlopesOf(rule, count), 0, 8, dtype);
    if (!change) continue;
    words += fmt::format(": {}, but {}", name, change->departures[0].message);
    break;
  }
  // A single head may be any head of a model.
  const auto in_head = [&](int64_t heads) {
    const std::vector<double> wanted = SlopesOf(kRules[0].rule, heads);
    for (int64_t h = 0; h < heads; ++h) {
      if (AreAlike(slopes, {wanted[h]})) return fmt::format(", as in head {} of {} of {}", h, heads, kRules[0].name);
    }
    return std::string();
  };
  for (const int64_t heads : {8, 12, 16, 32}) {
    const std::string like = count == 1 ? in_head(heads) : "";
    if (!like.empty()) return {1, 0, GivenSlopes{AsMatrix(own)}, words + like};
  }
  return {count, 0, GivenSlopes{AsMatrix(own)}, words};
}

float RoundedTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kBF16: return Widen<BFloat16>(Narrow<BFloat16>(static_cast<float>(value)));
    case DType::kFP16: return Widen<Float16>(Narrow<Float16>(static_cast<float>(value)));
    default: return static_cast<float>(value);
  }
}

std::string DescribeOrder(const char* what, const std::vector<size_t>& order, int64_t head) {
  bool reversed = true;
  for (size_t h = 0; h < order.size(); ++h) reversed &= order[h] + h + 1 == order.size();
  if (reversed && order.size() == 2) return fmt::format("{} of heads {} and {} are exchanged", what, head, head + 1);
  if (reversed) return fmt::format("{} of the heads are in reverse order", what);
  size_t first = 0;
  while (order[first] == first) ++first;
  return fmt::format("{} of the heads are in another order: head {} has those of head {}", what,
                     static_cast<int64_t>(first) + head, static_cast<int64_t>(order[first]) + head);
}

bool IsIdentity(const std::vector<size_t>& order) {
  for (size_t h = 0; h < order.size(); ++h) {
    if (order[h] != h) return false;
  }
  return true;
}

bool AreSameSlopes(const std::vector<double>& found, const std::vector<double>& wanted) {
  return found.size() == wanted.size() && AllNear(found, wanted, 1, 0x1p-22);
}

bool AreNearSlopes(const std::vector<double>& found, const std::vector<double>& wanted) {
  return found.size() == wanted.size() && AllNear(found, wanted, 1, 0x1p-18);
}

bool AreAlike(const std::vector<double>& found, const std::vector<double>& wanted) {
  return found.size() == wanted.size() && AllNear(found, wanted, 1, 0x1p-6);
}

FittedFault SlopesFault(const std::vector<double>& found, const std::vector<double>& wanted, int64_t head,
                        double bias_max, DType dtype) {
  if (found.size() != wanted.size()) {
    return FittedFault::Of("SLOPES", "one list of slopes was applied to all batch rows",
                           static_cast<int64_t>(found.size()));
  }
  if (auto change = Change(found, wanted, head, bias_max, dtype)) return *std::move(change);
  std::vector<std::string> heads;
  for (size_t h = 0; h < found.size(); ++h) {
    if (AreSameSlopes({found[h]}, {wanted[h]})) continue;
    std::string slope = Short(found[h]), other = Short(wanted[h]);
    if (slope == other) slope = fmt::format("{:.9g}", found[h]), other = fmt::format("{:.9g}", wanted[h]);
    heads.push_back(fmt::format("head {} has the slope {}, not {}", static_cast<int64_t>(h) + head, slope, other));
  }
  const auto others = static_cast<int64_t>(heads.size());
  constexpr size_t kMostHeads = 3;
  if (heads.size() > kMostHeads) heads.resize(1), heads[0] = "other slopes were applied: " + heads[0];
  return FittedFault::Of("SLOPES", fmt::format("{}", fmt::join(heads, ", and ")), others);
}

}  // namespace posenc::diagnose
