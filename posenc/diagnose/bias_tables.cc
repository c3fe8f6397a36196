// Values of T5's table that a bias has where other values of the table are expected.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "posenc/base/interruption.h"
#include "posenc/diagnose/bias_candidates.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc::diagnose {
namespace {

class TableReader {
 public:
  TableReader(const BiasStructure& structure, const BiasExplanation& asked, int64_t offset, DType dtype)
      : values_(structure.values),
        first_(structure.first_distance - offset),
        table_(*asked.method.table),
        head_(*asked.geometry.head_start),
        bidirectional_(*std::get<T5Settings>(asked.method.settings).bidirectional),
        dtype_(dtype),
        buckets_(T5Buckets(asked.precision.frequencies, std::get<T5Settings>(asked.method.settings), first_,
                           static_cast<int64_t>(values_[0].size()))) {}

  std::optional<FittedFault> Read() const {
    for (const DType narrow : {DType::kBF16, DType::kFP16}) {
      const auto value = [&](size_t h, int64_t n) { return RoundedTo(narrow, Expected(h, n)); };
      if (narrow != dtype_ && All(value)) {
        return FittedFault::Of("ROUNDING", fmt::format("the table was rounded to {}", Name(narrow)));
      }
    }
    const int64_t half = table_.columns / 2;
    const auto opposite = [&](size_t h, int64_t n) {
      return Expected(h, n % half == 0 ? n : (n + half) % table_.columns);
    };
    if (bidirectional_ && All(opposite)) {
      return FittedFault::Of("TRANSPOSED",
                             "earlier keys have the values of later ones, as if queries and keys were exchanged");
    }
    if (const std::vector<size_t> order = Order(); order.size() == values_.size() && !IsIdentity(order)) {
      return FittedFault::Of("TABLE", DescribeOrder("values", order, head_));
    }
    return Moved();
  }

 private:
  static constexpr int64_t kZero = -1, kNowhere = -2;

  double Expected(size_t h, int64_t bucket) const {
    return table_.values[(head_ + static_cast<int64_t>(h)) * table_.columns + bucket];
  }
  // True if value(h, bucket) is the value of every distance.
  template <class Value>
  bool HeadHas(size_t h, const Value& value) const {
    for (size_t n = 0; n < buckets_.size(); ++n) {
      if (!std::isnan(values_[h][n]) && values_[h][n] != RoundedTo(dtype_, value(h, buckets_[n]))) return false;
    }
    return true;
  }
  template <class Value>
  bool All(const Value& value) const {
    for (size_t h = 0; h < values_.size(); ++h) {
      if (!HeadHas(h, value)) return false;
    }
    return true;
  }
  // For each head the first head whose values it has; shorter if one has none of them.
  std::vector<size_t> Order() const {
    std::vector<size_t> order;
    for (size_t h = 0; h < values_.size(); ++h) {
      for (size_t other = 0; other < values_.size() && order.size() == h; ++other) {
        InterruptionPoint();
        if (HeadHas(h, [&](size_t, int64_t n) { return Expected(other, n); })) order.push_back(other);
      }
      if (order.size() == h) break;
    }
    return order;
  }
  // The bucket whose values the heads have at a distance, its own if possible.
  int64_t BucketAt(size_t n) const {
    const auto has = [&](int64_t bucket) {
      for (size_t h = 0; h < values_.size(); ++h) {
        const double wanted = bucket == kZero ? 0 : RoundedTo(dtype_, Expected(h, bucket));
        if (!std::isnan(values_[h][n]) && values_[h][n] != wanted) return false;
      }
      return true;
    };
    if (has(buckets_[n])) return buckets_[n];
    for (int64_t bucket = 0; bucket < table_.columns; ++bucket) {
      if (bucket % 64 == 0) InterruptionPoint();
      if (has(bucket)) return bucket;
    }
    return has(kZero) ? kZero : kNowhere;
  }

  // Distances that have the values of other buckets, or 0, in all heads alike.
  std::optional<FittedFault> Moved() const {
    struct Bucket {
      size_t first;  // distance that has a value
      int64_t from;
      std::vector<double> values;
    };
    std::vector<std::optional<Bucket>> known(table_.columns);
    bool one_each = true, elsewhere = true;  // each bucket has one value; all values are somewhere in the table
    int64_t moved = 0;
    std::string first;
    for (size_t n = 0; n < buckets_.size(); ++n) {
      std::vector<double> here;
      for (const std::vector<double>& head : values_) here.push_back(head[n]);
      if (std::all_of(here.begin(), here.end(), [](double value) { return std::isnan(value); })) continue;
      std::optional<Bucket>& bucket = known[buckets_[n]];
      const bool again = bucket && bucket->values == here;
      const int64_t from = again ? bucket->from : BucketAt(n);
      one_each &= !bucket || again;
      elsewhere &= from != kNowhere;
      if (!bucket) bucket = {n, from, here};
      if (from == buckets_[n]) continue;
      const int64_t distance = static_cast<int64_t>(n) + first_;
      if (moved++ > 0 || from == kNowhere) continue;
      first = from == kZero
                  ? fmt::format("distance {} has the value 0, not the table's", distance)
                  : fmt::format("distance {} reads bucket {} of the table, not {}", distance, from, buckets_[n]);
    }
    if (moved == 0 || (!one_each && !elsewhere)) return std::nullopt;
    if (!one_each) return FittedFault::Of("BUCKETS", first, moved);
    int64_t buckets = 0, others = 0;
    for (size_t n = 0; n < known.size(); ++n) {
      buckets += known[n].has_value();
      if (!known[n] || known[n]->from == static_cast<int64_t>(n) || others++ > 0) continue;
      const int64_t from = known[n]->from;
      first = fmt::format("bucket {} has the ", n) +
              (from == kZero ? "value 0, not the table's" : fmt::format("table's value of bucket {}", from));
    }
    if (!elsewhere) return FittedFault::Of("TABLE", "the table has other values", buckets * Heads());
    const std::string rest = others > 1 ? fmt::format("; {} of {} buckets have another value", others, buckets) : "";
    return FittedFault::Of("TABLE", first + rest, others);
  }
  int64_t Heads() const { return static_cast<int64_t>(values_.size()); }

  const std::vector<std::vector<double>>& values_;
  const int64_t first_;
  const BiasTable& table_;
  const int64_t head_;
  const bool bidirectional_;
  const DType dtype_;
  const std::vector<int32_t> buckets_;
};

}  // namespace

std::optional<FittedFault> TableFault(const BiasStructure& structure, const BiasExplanation& asked, int64_t offset,
                                      DType dtype) {
  if (structure.follows != Follows::kDistance) return std::nullopt;
  return TableReader(structure, asked, offset, dtype).Read();
}

}  // namespace posenc::diagnose
