#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "posenc/base/interruption.h"
#include "posenc/diagnose/bias_candidates.h"
#include "posenc/kernels/convert.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc::diagnose {
namespace {

// Relative deviation of a slope that is rounding, of values to the compared type or of powers in float32.
double NearSlope(DType dtype) { return dtype == DType::kBF16 ? 0x1p-7 : dtype == DType::kFP16 ? 0x1p-9 : 0x1p-18; }

bool AllNear(const std::vector<double>& found, const std::vector<double>& wanted, double ratio, double tolerance) {
  for (size_t h = 0; h < found.size(); ++h) {
    if (!(std::fabs(found[h] / (ratio * wanted[h]) - 1) <= tolerance)) return false;
  }
  return true;
}

float RoundedTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kBF16: return Widen<BFloat16>(Narrow<BFloat16>(static_cast<float>(value)));
    case DType::kFP16: return Widen<Float16>(Narrow<Float16>(static_cast<float>(value)));
    default: return static_cast<float>(value);
  }
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

// The values of each head's buckets [H][num_buckets].
using BucketValues = std::vector<std::vector<float>>;

// The values of the expected table.
BucketValues Expected(const BiasExplanation& asked) {
  const BiasTable& table = *asked.method.table;
  BucketValues values;
  for (int64_t h = 0; h < *asked.geometry.head_count; ++h) {
    const auto begin = table.values.begin() + (*asked.geometry.head_start + h) * table.columns;
    values.emplace_back(begin, begin + table.columns);
  }
  return values;
}

// The values that the data show; NaN for a bucket without data.
BucketValues Shown(const BiasStructure& structure, const BiasExplanation& found) {
  const auto& settings = std::get<T5Settings>(found.method.settings);
  const std::vector<int32_t> buckets =
      T5Buckets(found.precision.frequencies, settings, structure.first_distance - OffsetOf(found),
                static_cast<int64_t>(structure.values[0].size()));
  BucketValues shown;
  for (const std::vector<double>& head : structure.values) {
    std::vector<float>& values = shown.emplace_back(*settings.num_buckets, static_cast<float>(kNan));
    for (size_t n = 0; n < head.size(); ++n) {
      InterruptionPointOfStep(static_cast<int64_t>(n));
      if (!std::isnan(head[n])) values[buckets[n]] = static_cast<float>(head[n]);
    }
  }
  return shown;
}

// True if the shown values are those that `wanted` gives for the bucket.
template <class Wanted>
bool HasValues(const std::vector<float>& shown, const Wanted& wanted) {
  for (size_t n = 0; n < shown.size(); ++n) {
    if (!std::isnan(shown[n]) && shown[n] != wanted(n)) return false;
  }
  return true;
}

}  // namespace

bool AreSameSlopes(const std::vector<double>& found, const std::vector<double>& wanted) {
  return found.size() == wanted.size() && AllNear(found, wanted, 1, 0x1p-22);
}

bool AreNearSlopes(const std::vector<double>& found, const std::vector<double>& wanted) {
  return found.size() == wanted.size() && AllNear(found, wanted, 1, 0x1p-18);
}

FittedDeparture SlopesDeparture(const std::vector<double>& found, const std::vector<double>& wanted, int64_t head,
                                double bias_max, DType dtype) {
  const auto count = static_cast<int64_t>(found.size());
  const double tolerance = NearSlope(dtype);
  if (found.size() != wanted.size()) return {{"SLOPES", "one list of slopes was applied to all batch rows"}, count};
  if (AllNear(found, wanted, -1, tolerance)) return {{"SIGN", "slopes have the wrong sign"}};
  if (const auto narrow = RoundedSlopes(found, wanted)) {
    return {{"ROUNDING", fmt::format("slopes were rounded to {}", Name(*narrow))}};
  }
  double ratio = 0;  // of all heads, which are better known together
  for (size_t h = 0; h < found.size(); ++h) ratio += found[h] / wanted[h] / static_cast<double>(count);
  const std::string factor = Short(Snap(std::fabs(ratio) < 1 ? 1 / ratio : ratio, tolerance / 4));
  if (found.size() > 1 && factor != "1" && AllNear(found, wanted, ratio, tolerance)) {
    const double step = wanted[0] / wanted[1];  // ratio of adjacent heads' slopes
    const char* why = std::fabs(ratio / step - 1) < tolerance   ? ", as if exponents began one head too early"
                      : std::fabs(ratio * step - 1) < tolerance ? ", as if exponents began one head too late"
                                                                : "";
    return {
        {"SCALE", fmt::format("slopes were {} by {}{}", std::fabs(ratio) < 1 ? "divided" : "multiplied", factor, why)},
        1};
  }
  if (const double power = Proportion(found, wanted, tolerance); power != 1) {
    return {{"SLOPES", fmt::format("exponents of the slopes were multiplied by {}, as by an alibi_bias_max of {} "
                                   "instead of {}",
                                   Short(power), Short(Snap(bias_max * power, 1e-3)), Short(bias_max))},
            1};
  }
  if (const std::vector<size_t> order = Order(found, wanted, tolerance); !order.empty() && !IsIdentity(order)) {
    return {{"SLOPES", DescribeOrder("slopes", order, head)}};
  }
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
  return {{"SLOPES", fmt::format("{}", fmt::join(heads, ", and "))}, others};
}

FittedDeparture TableDeparture(const BiasStructure& structure, const BiasExplanation& found,
                               const BiasExplanation& asked, DType dtype) {
  const BucketValues values = Shown(structure, found), wanted = Expected(asked);
  const size_t heads = values.size(), buckets = wanted[0].size();
  const auto all = [&](const auto& value) {  // value(h, bucket) explains every value
    for (size_t h = 0; h < heads; ++h) {
      if (!HasValues(values[h], [&](size_t n) { return RoundedTo(dtype, value(h, n)); })) return false;
    }
    return true;
  };
  // Then the buckets have other distances, as those of float32 logarithms do.
  if (all([&](size_t h, size_t n) { return wanted[h][n]; })) return {{"BUCKETS", found.sentence}};
  for (const DType narrow : {DType::kBF16, DType::kFP16}) {
    if (narrow != dtype && all([&](size_t h, size_t n) { return RoundedTo(narrow, wanted[h][n]); })) {
      return {{"ROUNDING", fmt::format("the table was rounded to {}", Name(narrow))}};
    }
  }
  const size_t half = buckets / 2;
  if (*std::get<T5Settings>(asked.method.settings).bidirectional &&
      all([&](size_t h, size_t n) { return wanted[h][n % half == 0 ? n : (n + half) % buckets]; })) {
    return {{"TRANSPOSED", "earlier keys have the values of later ones, as if queries and keys were exchanged"}};
  }
  std::vector<size_t> order;
  for (size_t h = 0; h < heads; ++h) {
    for (size_t other = 0; other < heads && order.size() == h; ++other) {
      if (other % 64 == 0) InterruptionPoint();
      if (HasValues(values[h], [&](size_t n) { return RoundedTo(dtype, wanted[other][n]); })) order.push_back(other);
    }
  }
  if (order.size() == heads && !IsIdentity(order)) {
    return {{"TABLE", DescribeOrder("values", order, *asked.geometry.head_start)}};
  }
  // Buckets with the values of other buckets, or with 0, in all heads alike.
  size_t moved = 0, known = 0;
  std::string first;
  for (size_t n = 0; n < values[0].size(); ++n) {
    const auto has = [&](const auto& value) {
      for (size_t h = 0; h < heads; ++h) {
        if (!std::isnan(values[h][n]) && values[h][n] != value(h)) return false;
      }
      return true;
    };
    const auto has_value = [&](size_t other) {
      return has([&](size_t h) { return RoundedTo(dtype, wanted[h][other]); });
    };
    if (std::all_of(values.begin(), values.end(), [n](const auto& head) { return std::isnan(head[n]); })) continue;
    ++known;
    if (n < buckets && has_value(n)) continue;
    size_t other = 0;
    while (other < buckets && !has_value(other)) {
      if (other % 64 == 0) InterruptionPoint();
      ++other;
    }
    const bool zero = other == buckets && has([](size_t) { return 0; });
    if (other == buckets && !zero) return {{"TABLE", "the table has other values"}, found.free_values};
    if (moved++ > 0) continue;
    first = fmt::format("bucket {} has the ", n) +
            (zero ? "value 0, not the table's" : fmt::format("table's value of bucket {}", other));
  }
  const std::string rest = moved > 1 ? fmt::format("; {} of {} buckets have another value", moved, known) : "";
  return {{"TABLE", first + rest}, static_cast<int64_t>(moved)};
}

}  // namespace posenc::diagnose
