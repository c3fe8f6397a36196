#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/diagnose/bias_candidates.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc::diagnose {
namespace {

constexpr int64_t kBuckets[] = {32, 16, 64, 128, 256, 320, 12, 8};
constexpr int64_t kDistances[] = {128, 20, 64, 256, 512, 800, 1024, 2048, 16, 32, 100, 160, 200, 384, 1000, 4096};

// One head's table [buckets]; NaN for a bucket that no distance has. Absent if a bucket has two values, or if no bucket
// but the first is shared by distances, because then any values would fit.
std::optional<std::vector<double>> TableOf(const ByDistance& values, const std::vector<int32_t>& buckets, int64_t first,
                                           size_t count) {
  std::vector<double> table(count, kNan);
  bool shared = false;
  for (size_t n = 0; n < buckets.size(); ++n) {
    const double value = values.At(first + static_cast<int64_t>(n));
    double& entry = table[buckets[n]];
    if (std::isnan(value)) continue;
    shared |= !std::isnan(entry) && buckets[n] != 0;
    if (std::isnan(entry)) entry = value;
    if (entry != value) return std::nullopt;
  }
  if (!shared) return std::nullopt;
  return table;
}

// True if values change where buckets that several distances share meet, so that the data show where buckets begin.
bool ShowsBuckets(const BiasStructure& structure, const std::vector<int32_t>& buckets, int64_t first, size_t count) {
  std::vector<int64_t> distances(count);
  for (size_t n = 0; n < buckets.size(); ++n) {
    distances[buckets[n]] += !std::isnan(ByDistance(structure, 0).At(first + static_cast<int64_t>(n)));
  }
  int64_t borders = 0, changes = 0;
  for (size_t n = 1; n < buckets.size(); ++n) {
    const int32_t a = buckets[n - 1], b = buckets[n];
    if (a == b || distances[a] < 2 || distances[b] < 2) continue;
    ++borders;
    bool changed = false;
    for (size_t h = 0; h < structure.values.size(); ++h) {
      const ByDistance values(structure, h);
      const double left = values.At(first + static_cast<int64_t>(n) - 1),
                   right = values.At(first + static_cast<int64_t>(n));
      changed |= left != right && !std::isnan(left) && !std::isnan(right);
    }
    changes += changed;
  }
  return borders > 0 && 2 * changes >= borders;
}

// True if a bucket has two values in head 0, for distances near the offset. Rejects most settings early, before the
// buckets of all distances are computed.
bool Contradicts(const ByDistance& values, Frequencies arithmetic, const T5Settings& settings, int64_t offset) {
  constexpr int64_t kNear = 512;
  const int64_t first = std::max(values.first(), offset - kNear), last = std::min(values.last(), offset + kNear);
  if (first > last) return false;
  const auto buckets = T5Buckets(arithmetic, settings, first - offset, last - first + 1);
  std::vector<double> table(*settings.num_buckets, kNan);
  for (int64_t d = first; d <= last; ++d) {
    const double value = values.At(d);
    double& entry = table[buckets[d - first]];
    if (std::isnan(value)) continue;
    if (std::isnan(entry)) entry = value;
    if (entry != value) return true;
  }
  return false;
}

bool AreSameWhereKnown(const ByDistance& values, const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  for (size_t n = 0; n < a.size(); ++n) {
    if (a[n] != b[n] && !std::isnan(values.At(values.first() + static_cast<int64_t>(n)))) return false;
  }
  return true;
}

struct Found {
  BiasCandidate candidate;
  std::vector<int32_t> buckets;
  int64_t num_buckets;
  int64_t others = 0;  // number of other settings with the same buckets
};

std::vector<T5Settings> Settings(const T5Settings* asked) {
  std::vector<int64_t> counts(std::begin(kBuckets), std::end(kBuckets));
  std::vector<int64_t> distances(std::begin(kDistances), std::end(kDistances));
  const auto add = [](int64_t value, std::vector<int64_t>* values) {
    if (std::find(values->begin(), values->end(), value) == values->end()) values->insert(values->begin(), value);
  };
  if (asked != nullptr) {
    add(*asked->num_buckets, &counts);
    add(*asked->max_distance, &distances);
  }
  std::vector<T5Settings> all;  // what was asked for is the first
  if (asked != nullptr) all.push_back(*asked);
  for (const bool bidirectional : {true, false}) {
    for (const int64_t count : counts) {
      for (const int64_t distance : distances) {
        T5Settings settings{count, distance, bidirectional};
        const bool again = asked != nullptr && count == *asked->num_buckets && distance == *asked->max_distance &&
                           bidirectional == *asked->bidirectional;
        if (!again && Complete(settings).ok()) all.push_back(settings);
      }
    }
  }
  return all;
}

// Adds a candidate that fits to `found`, keyed by the number of buckets that have a value.
void TryT5(const BiasEvidence& e, const BiasStructure& structure, Frequencies arithmetic, const T5Settings& settings,
           int64_t offset, std::map<size_t, std::vector<Found>>* found) {
  const ByDistance first(structure, 0);
  if (Contradicts(first, arithmetic, settings, offset)) return;
  const int64_t count = first.last() - first.first() + 1;
  auto buckets = T5Buckets(arithmetic, settings, first.first() - offset, count);
  BiasTable table{.rows = e.heads(), .columns = *settings.num_buckets, .shared = false};
  std::set<int32_t> used;
  for (int64_t h = 0; h < e.heads(); ++h) {
    const auto head = TableOf(ByDistance(structure, h), buckets, first.first(), *settings.num_buckets);
    if (!head) return;
    for (int64_t n = 0; n < *settings.num_buckets; ++n) {
      const bool known = !std::isnan((*head)[n]);
      if (known) used.insert(static_cast<int32_t>(n));
      table.values.push_back(known ? static_cast<float>((*head)[n]) : 0);
    }
  }
  // A table with as many values as distances would fit anything.
  const int64_t known = std::count_if(structure.values[0].begin(), structure.values[0].end(),
                                      [](double value) { return !std::isnan(value); });
  if (4 * static_cast<int64_t>(used.size()) > 3 * known ||
      !ShowsBuckets(structure, buckets, first.first(), *settings.num_buckets)) {
    return;
  }
  std::vector<Found>& alike = (*found)[used.size()];
  for (Found& other : alike) {
    if (other.candidate.query_offset != offset || !AreSameWhereKnown(first, other.buckets, buckets)) continue;
    if (arithmetic == Frequencies::kExact) ++other.others;
    return;
  }
  BiasCandidate candidate{.query_offset = offset};
  candidate.free_values = static_cast<int64_t>(used.size()) * e.heads();
  candidate.variants.push_back({{settings, table}, {.frequencies = arithmetic}, ""});
  candidate.sentence =
      fmt::format("T5, {} buckets up to a distance of {}, {}{}{}", *settings.num_buckets, *settings.max_distance,
                  *settings.bidirectional ? "in both directions" : "for earlier keys only",
                  arithmetic == Frequencies::kFloat32 ? ", with float32 logarithms" : "", Place(e, offset));
  // Later keys never have distance 0, so one bucket of a bidirectional table is never read.
  const size_t readable = *settings.num_buckets - (*settings.bidirectional ? 1 : 0);
  if (used.size() < readable) {
    candidate.sentence += fmt::format("; number of buckets without data, 0 in the table: {}", readable - used.size());
  }
  alike.push_back({std::move(candidate), std::move(buckets), *settings.num_buckets});
}

// Adds a candidate with the expected table and other settings if head 0 has the table's values near the first query.
void TryTable(const BiasStructure& structure, const BiasExplanation& asked, const T5Settings& settings,
              std::vector<BiasCandidate>* candidates) {
  const auto& wanted = std::get<T5Settings>(asked.method.settings);
  BiasTable table = *asked.method.table;
  const int64_t free_values = (*settings.num_buckets != *wanted.num_buckets) +
                              (*settings.max_distance != *wanted.max_distance) +
                              (*settings.bidirectional != *wanted.bidirectional);
  if (free_values == 0 || *settings.num_buckets > table.columns) return;
  const int64_t columns = *settings.num_buckets;
  for (int64_t h = 0; h < table.rows; ++h) {
    std::copy_n(table.values.begin() + h * table.columns, columns, table.values.begin() + h * columns);
  }
  table.columns = columns;
  table.values.resize(table.rows * columns);
  const ByDistance values(structure, 0);
  const int64_t offset = OffsetOf(asked), near = 512;
  const int64_t first = std::max(values.first(), offset - near), last = std::min(values.last(), offset + near);
  if (first > last) return;
  const auto buckets = T5Buckets(asked.precision.frequencies, settings, first - offset, last - first + 1);
  const float* row = table.values.data() + *asked.geometry.head_start * columns;
  for (int64_t d = first; d <= last; ++d) {
    const double value = values.At(d), expected = row[buckets[d - first]];
    if (std::abs(value - expected) > 0x1p-6 * std::abs(expected)) return;  // a missing value is NaN
  }
  BiasCandidate candidate{.head_start = *asked.geometry.head_start, .query_offset = offset, .free_values = free_values};
  candidate.variants.push_back({{settings, table}, asked.precision, ""});
  candidate.sentence =
      fmt::format("T5, {} buckets up to a distance of {}, {}, with the expected table", columns, *settings.max_distance,
                  *settings.bidirectional ? "in both directions" : "for earlier keys only");
  candidates->push_back(std::move(candidate));
}

}  // namespace

absl::StatusOr<std::vector<BiasCandidate>> T5Candidates(const BiasEvidence& e, const BiasStructure& structure,
                                                        const BiasExplanation* asked, bool has_table,
                                                        int64_t most_values, const Cancellation& cancelled) {
  std::vector<BiasCandidate> candidates;
  const T5Settings* t5 = asked == nullptr ? nullptr : std::get_if<T5Settings>(&asked->method.settings);
  if (structure.follows != Follows::kDistance) return candidates;
  std::vector<T5Settings> all = Settings(t5);
  std::erase_if(all, [&](const T5Settings& settings) { return *settings.num_buckets > most_values / e.heads(); });
  if (t5 != nullptr && has_table) {
    for (const T5Settings& settings : all) {
      POSENC_RETURN_IF_ERROR(cancelled());
      TryTable(structure, *asked, settings, &candidates);
    }
  }
  if (IsConstant(structure)) return candidates;
  // Keyed by the number of buckets that have a value. More buckets fit more biases, so prefer the fewest.
  std::map<size_t, std::vector<Found>> found;
  for (const int64_t offset : UsualOffsets(e, structure)) {
    for (const Frequencies arithmetic : {Frequencies::kExact, Frequencies::kFloat32}) {
      for (const T5Settings& settings : all) {
        POSENC_RETURN_IF_ERROR(cancelled());
        TryT5(e, structure, arithmetic, settings, offset, &found);
      }
    }
  }
  if (found.empty()) return candidates;
  std::vector<Found>& simplest = found.begin()->second;
  const auto key = [t5](const Found& one) {
    const auto& settings = std::get<T5Settings>(one.candidate.variants[0].method.settings);
    const bool as_asked = t5 != nullptr && *settings.num_buckets == *t5->num_buckets &&
                          *settings.max_distance == *t5->max_distance && *settings.bidirectional == *t5->bidirectional;
    return std::pair(!as_asked, one.num_buckets);
  };
  std::stable_sort(simplest.begin(), simplest.end(),
                   [&key](const Found& a, const Found& b) { return key(a) < key(b); });
  for (Found& one : simplest) {
    if (one.others > 0) {
      one.candidate.sentence += fmt::format("; number of other settings with the same buckets: {}", one.others);
    }
    candidates.push_back(std::move(one.candidate));
  }
  return candidates;
}

absl::StatusOr<BiasTable> FirstValues(const BiasEvidence& e, const FoundMask& mask, Frequencies arithmetic,
                                      const T5Settings& settings, int64_t query_offset, const Cancellation& cancelled) {
  const int64_t first = 1 - e.queries();
  const auto buckets = T5Buckets(arithmetic, settings, first - query_offset, e.queries() + e.keys() - 1);
  const int64_t count = *settings.num_buckets;
  BiasTable table{.values = std::vector<float>(e.heads() * count, static_cast<float>(kNan)),
                  .rows = e.heads(),
                  .columns = count,
                  .shared = false};
  POSENC_RETURN_IF_ERROR(VisitRows(e, cancelled, [&](int64_t, int64_t h, int64_t i, const std::vector<double>& row) {
    for (int64_t j = 0; j < e.keys(); ++j) {
      float& entry = table.values[h * count + buckets[j - i - first]];
      if (std::isnan(entry) && !mask.Hides(row[j])) entry = static_cast<float>(row[j]);
    }
    return absl::OkStatus();
  }));
  for (float& entry : table.values) entry = std::isfinite(entry) ? entry : 0;
  return table;
}

}  // namespace posenc::diagnose
