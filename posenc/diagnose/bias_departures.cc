#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "posenc/base/interruption.h"
#include "posenc/diagnose/bias_candidates.h"
#include "posenc/kernels/convert.h"

namespace posenc::diagnose {
namespace {

constexpr double kNearSlope = 0x1p-7;

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
std::vector<size_t> Order(const std::vector<double>& found, const std::vector<double>& wanted) {
  std::vector<size_t> order;
  for (const double slope : found) {
    InterruptionPoint();
    const auto near = [slope](double other) { return std::fabs(slope / other - 1) <= kNearSlope; };
    const auto at = std::find_if(wanted.begin(), wanted.end(), near);
    if (at == wanted.end()) return {};
    order.push_back(at - wanted.begin());
  }
  return order;
}

// Exponents in proportion: 2^(-m (h + 1) / H) with another m. Returns m over the wanted one; 1 if there is none.
double Proportion(const std::vector<double>& found, const std::vector<double>& wanted) {
  const double power = std::log(found.back()) / std::log(wanted.back());
  if (!std::isfinite(power) || std::fabs(power - 1) <= 1e-3 || found.size() < 2) return 1;
  for (size_t h = 0; h < found.size(); ++h) {
    if (!(std::fabs(std::log(found[h]) / std::log(wanted[h]) / power - 1) < 1e-2)) return 1;
  }
  return Snap(power, 1e-3);
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

// The table's rows of the heads in the bias. A bucket without data is 0 in a table that was taken from the data.
std::vector<std::vector<float>> RowsHere(const BiasExplanation& explanation) {
  const BiasTable& table = *explanation.method.table;
  std::vector<std::vector<float>> rows;
  for (int64_t h = 0; h < *explanation.geometry.head_count; ++h) {
    const auto begin = table.values.begin() + (*explanation.geometry.head_start + h) * table.columns;
    rows.emplace_back(begin, begin + table.columns);
  }
  return rows;
}

// True if the found values are those that `wanted` gives for the bucket; those without data are ignored.
template <class Wanted>
bool HasValues(const std::vector<float>& found, const Wanted& wanted) {
  for (size_t n = 0; n < found.size(); ++n) {
    if (found[n] != 0 && found[n] != wanted(n)) return false;
  }
  return true;
}

}  // namespace

FittedDeparture SlopesDeparture(const std::vector<double>& found, const std::vector<double>& wanted, int64_t head,
                                double bias_max) {
  const auto count = static_cast<int64_t>(found.size());
  if (found.size() != wanted.size()) return {{"SLOPES", "slopes of its own for each batch row"}, count};
  if (AllNear(found, wanted, -1, kNearSlope)) return {{"SIGN", "slopes have the wrong sign"}};
  if (const auto dtype = RoundedSlopes(found, wanted)) {
    return {{"ROUNDING", fmt::format("slopes were rounded to {}", Name(*dtype))}};
  }
  const double ratio = found[0] / wanted[0];
  if (found.size() > 1 && !AllNear(found, wanted, 1, kNearSlope) && AllNear(found, wanted, ratio, kNearSlope)) {
    const double step = wanted[0] / wanted[1];  // ratio of adjacent heads' slopes
    const char* why = std::fabs(ratio / step - 1) < kNearSlope   ? ", as if exponents began one head too early"
                      : std::fabs(ratio * step - 1) < kNearSlope ? ", as if exponents began one head too late"
                                                                 : "";
    return {{"SCALE", fmt::format("slopes were {} by {}{}", std::fabs(ratio) < 1 ? "divided" : "multiplied",
                                  Short(Snap(std::fabs(ratio) < 1 ? 1 / ratio : ratio, 1e-5)), why)},
            1};
  }
  if (const double power = Proportion(found, wanted); power != 1) {
    return {{"SLOPES", fmt::format("exponents of the slopes were multiplied by {}, as by an alibi_bias_max of {} "
                                   "instead of {}",
                                   Short(power), Short(Snap(bias_max * power, 1e-3)), Short(bias_max))},
            1};
  }
  if (const std::vector<size_t> order = Order(found, wanted); !order.empty() && !IsIdentity(order)) {
    return {{"SLOPES", DescribeOrder("slopes", order, head)}};
  }
  std::vector<std::string> heads;
  for (size_t h = 0; h < found.size(); ++h) {
    if (AllNear({found[h]}, {wanted[h]}, 1, 0x1p-22)) continue;
    heads.push_back(fmt::format("head {} has the slope {}, not {}", static_cast<int64_t>(h) + head, Short(found[h]),
                                Short(wanted[h])));
  }
  const auto others = static_cast<int64_t>(heads.size());
  constexpr size_t kMostHeads = 3;
  if (heads.size() > kMostHeads) heads.resize(1), heads[0] = "other slopes were applied: " + heads[0];
  return {{"SLOPES", fmt::format("{}", fmt::join(heads, ", and "))}, others};
}

FittedDeparture TableDeparture(const BiasExplanation& found, const BiasExplanation& asked, DType dtype) {
  const auto values = RowsHere(found), wanted = RowsHere(asked);
  const size_t heads = values.size(), buckets = wanted[0].size();
  const auto all = [&](const auto& value) {  // value(h, bucket) explains every value
    for (size_t h = 0; h < heads; ++h) {
      if (!HasValues(values[h], [&](size_t n) { return RoundedTo(dtype, value(h, n)); })) return false;
    }
    return true;
  };
  for (const DType narrow : {DType::kBF16, DType::kFP16}) {
    if (all([&](size_t h, size_t n) { return RoundedTo(narrow, wanted[h][n]); })) {
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
  // Buckets that are numbered otherwise, in all heads alike.
  size_t moved = 0, first_moved = 0, first_other = 0, known = 0;
  for (size_t n = 0; n < values[0].size(); ++n) {
    const auto has_value = [&](size_t other) {
      for (size_t h = 0; h < heads; ++h) {
        if (values[h][n] != RoundedTo(dtype, wanted[h][other])) return false;
      }
      return true;
    };
    if (values[0][n] == 0) continue;
    ++known;
    if (n < buckets && has_value(n)) continue;
    size_t other = 0;
    while (other < buckets && !has_value(other)) {
      if (other % 64 == 0) InterruptionPoint();
      ++other;
    }
    if (other == buckets) return {{"TABLE", "the table has other values"}, found.free_values};
    if (moved++ == 0) first_moved = n, first_other = other;
  }
  const std::string rest = moved > 1 ? fmt::format("; {} of {} buckets have another one's", moved, known) : "";
  return {{"TABLE", fmt::format("bucket {} has the table's value of bucket {}{}", first_moved, first_other, rest)},
          static_cast<int64_t>(moved)};
}

}  // namespace posenc::diagnose
