#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/diagnose/bias_candidates.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc::diagnose {
namespace {

constexpr int64_t kBuckets[] = {32, 16, 64, 128, 256, 320, 12, 8};
constexpr int64_t kDistances[] = {128, 20, 64, 256, 512, 800, 1024, 2048, 16, 32, 100, 160, 200, 384, 1000, 4096};

// The distances, as indices from the first, at which values change.
class Changes {
 public:
  explicit Changes(const BiasStructure& structure) : begin_(structure.values[0].size()), known_(begin_.size() + 1) {
    for (const std::vector<double>& head : structure.values) {
      double last = kNan;
      int32_t begin = 0, after_last = 0;
      for (size_t n = 0; n < head.size(); ++n) {
        InterruptionPointOfStep(static_cast<int64_t>(n));
        if (!std::isnan(head[n])) {
          if (!std::isnan(last) && head[n] != last) begin = after_last;
          last = head[n];
          after_last = static_cast<int32_t>(n) + 1;
          known_[n + 1] = 1;
        }
        begin_[n] = std::max(begin_[n], begin);
      }
    }
    std::partial_sum(known_.begin(), known_.end(), known_.begin());
  }

  int64_t count() const { return static_cast<int64_t>(begin_.size()); }
  // The first distance at which a head has another value than at the distance before; 0 if there is none.
  int64_t First() const {
    for (int64_t n = 1; n < count(); ++n) {
      if (begin_[n] == n) return n;
    }
    return 0;
  }
  // True if no head has two values at the distances first .. last.
  bool IsOneValue(int64_t first, int64_t last) const { return begin_[last] <= first; }
  // Number of the distances first .. last at which a head has a value.
  int64_t Known(int64_t first, int64_t last) const { return known_[last + 1] - known_[first]; }

 private:
  std::vector<int32_t> begin_;  // the first distance from which on no head has two values
  std::vector<int32_t> known_;  // number of earlier distances at which a head has a value
};

// The distances that share a bucket, as indices from the first.
struct Shared {
  int32_t bucket;
  int64_t first, last;
  int64_t known = 0;  // number of them at which a head has a value
};

struct Found {
  T5Settings settings;
  Frequencies arithmetic;
  int64_t offset;
  std::vector<Shared> buckets;  // those with a value
  int64_t others = 0;           // number of other settings with the same buckets
};

// The buckets of `count` distances from `first` on. Beyond max_distance every distance has the same one.
std::vector<Shared> BucketsOf(Frequencies arithmetic, const T5Settings& settings, int64_t first, int64_t count) {
  const int64_t begin = std::clamp<int64_t>(-*settings.max_distance - first, 0, count - 1),
                end = std::clamp<int64_t>(*settings.max_distance - first, 0, count - 1);
  const std::vector<int32_t> buckets = T5Buckets(arithmetic, settings, first + begin, end - begin + 1);
  std::vector<Shared> shared;
  for (size_t n = 0; n < buckets.size(); ++n) {
    const int64_t distance = n == 0 ? 0 : begin + static_cast<int64_t>(n);
    if (shared.empty() || shared.back().bucket != buckets[n]) shared.push_back({buckets[n], distance, distance});
    shared.back().last = begin + static_cast<int64_t>(n);
  }
  shared.back().last = count - 1;
  return shared;
}

// True if values change where buckets that several distances share meet, so that the data show where buckets begin.
bool ShowsBuckets(const Changes& changes, const std::vector<Shared>& buckets) {
  int64_t borders = 0, changed = 0;
  for (size_t n = 1; n < buckets.size(); ++n) {
    if (buckets[n - 1].known < 2 || buckets[n].known < 2) continue;
    ++borders;
    changed += !changes.IsOneValue(buckets[n - 1].last, buckets[n].first);
  }
  return borders > 0 && 2 * changed >= borders;
}

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

// Adds settings that fit to `found`, keyed by the number of buckets that have a value.
void TryT5(const Changes& changes, int64_t first_distance, Found one, std::map<size_t, std::vector<Found>>* found) {
  std::vector<Shared>& buckets = one.buckets;
  buckets = BucketsOf(one.arithmetic, one.settings, first_distance - one.offset, changes.count());
  bool shared = false;
  for (Shared& bucket : buckets) {
    if (!changes.IsOneValue(bucket.first, bucket.last)) return;
    bucket.known = changes.Known(bucket.first, bucket.last);
    shared |= bucket.known > 1 && bucket.bucket != 0;
  }
  // If only the first bucket is shared by distances, any values would fit.
  if (!shared || !ShowsBuckets(changes, buckets)) return;
  std::erase_if(buckets, [](const Shared& bucket) { return bucket.known == 0; });
  // A table with as many values as distances would fit anything.
  if (4 * static_cast<int64_t>(buckets.size()) > 3 * changes.Known(0, changes.count() - 1)) return;
  std::vector<Found>& alike = (*found)[buckets.size()];
  const auto same = [&](const Found& other) {
    return other.offset == one.offset &&
           std::equal(buckets.begin(), buckets.end(), other.buckets.begin(),
                      [](const Shared& a, const Shared& b) { return a.bucket == b.bucket && a.known == b.known; });
  };
  const auto other = std::find_if(alike.begin(), alike.end(), same);
  if (other == alike.end()) {
    alike.push_back(std::move(one));
  } else if (one.arithmetic == Frequencies::kExact) {
    ++other->others;
  }
}

std::string Words(const T5Settings& settings) {
  return fmt::format("T5, {} buckets up to a distance of {}, {}", *settings.num_buckets, *settings.max_distance,
                     *settings.bidirectional ? "in both directions" : "for earlier keys only");
}

BiasCandidate CandidateOf(const BiasEvidence& e, BiasTable table, const Found& found) {
  const T5Settings& settings = found.settings;
  const size_t used = found.buckets.size();
  BiasCandidate candidate{.query_offset = found.offset};
  candidate.free_values = static_cast<int64_t>(used) * e.heads();
  for (float& value : table.values) {
    if (std::isnan(value)) value = 0;
  }
  candidate.variants.push_back({{settings, std::move(table)}, {.frequencies = found.arithmetic}, ""});
  candidate.sentence = Words(settings);
  if (found.arithmetic == Frequencies::kFloat32) candidate.sentence += ", with float32 logarithms";
  candidate.sentence += Place(e, found.offset);
  // Later keys never have distance 0, so one bucket of a bidirectional table is never read.
  const size_t readable = *settings.num_buckets - (*settings.bidirectional ? 1 : 0);
  if (used < readable) {
    candidate.sentence += fmt::format("; number of buckets without data, 0 in the table: {}", readable - used);
  }
  if (found.others > 0) {
    candidate.sentence += fmt::format("; number of other settings with the same buckets: {}", found.others);
  }
  return candidate;
}

// True if the head's values are near those of the table's row where the buckets are these.
bool HasTable(const BiasEvidence& e, const std::vector<double>& head, const std::vector<Shared>& buckets,
              const float* row) {
  for (const Shared& one : buckets) {
    for (int64_t n = one.first; n <= one.last; ++n) {
      InterruptionPointOfStep(n);
      const double computed = row[one.bucket];
      if (std::abs(head[n] / e.divisor - computed) > 0x1p-6 * std::abs(computed)) return false;  // NaN is not
    }
  }
  return true;
}

// Adds a candidate with the expected table and other settings if head 0 has the table's values.
void TryTable(const BiasEvidence& e, const BiasStructure& structure, const BiasExplanation& asked,
              const T5Settings& settings, int64_t offset, std::vector<BiasCandidate>* candidates) {
  const auto& wanted = std::get<T5Settings>(asked.method.settings);
  const BiasTable& expected = *asked.method.table;
  const int64_t free_values = (*settings.num_buckets != *wanted.num_buckets) +
                              (*settings.max_distance != *wanted.max_distance) +
                              (*settings.bidirectional != *wanted.bidirectional);
  if (free_values == 0 || *settings.num_buckets > expected.columns) return;
  const float* row = expected.values.data() + *asked.geometry.head_start * expected.columns;
  const std::vector<Shared> buckets =
      BucketsOf(asked.precision.frequencies, settings, structure.first_distance - offset, e.queries() + e.keys() - 1);
  if (!HasTable(e, structure.values[0], buckets, row)) return;
  const int64_t columns = *settings.num_buckets;
  BiasTable table{.rows = expected.rows, .columns = columns, .shared = expected.shared};
  for (int64_t h = 0; h < table.rows; ++h) {
    const auto begin = expected.values.begin() + h * expected.columns;
    table.values.insert(table.values.end(), begin, begin + columns);
  }
  BiasCandidate candidate{.head_start = *asked.geometry.head_start, .query_offset = offset, .free_values = free_values};
  candidate.variants.push_back({{settings, table}, asked.precision, ""});
  candidate.sentence = Words(settings) + ", with the expected table" + Place(e, offset);
  candidates->push_back(std::move(candidate));
}

}  // namespace

std::vector<int64_t> T5Offsets(const BiasEvidence& e, const BiasStructure& structure, const BiasMethod& method,
                               const Precision& precision, int64_t head_start) {
  const std::vector<int64_t> usual = UsualOffsets(e, structure);
  const auto& settings = std::get<T5Settings>(method.settings);
  const int64_t farthest = *settings.max_distance, distances = e.queries() + e.keys() - 1;
  if (structure.follows != Follows::kDistance || farthest > *std::max_element(kDistances, std::end(kDistances))) {
    return usual;
  }
  const std::vector<Shared> all = BucketsOf(precision.frequencies, settings, -farthest, 2 * farthest + 1);
  // Each trial computes the buckets of these distances again: tables of thousands of buckets take too long.
  constexpr int64_t kMostDistances = 1 << 20;
  if (static_cast<int64_t>(all.size()) * (2 * farthest + 1) > kMostDistances) return usual;
  // Where a value changes, a bucket begins: try each.
  const auto try_each = [&](int64_t changed, const auto& holds) {
    std::vector<int64_t> offsets;
    for (size_t n = 1; changed > 0 && n < all.size(); ++n) {
      const int64_t offset = structure.first_distance + changed - (all[n].first - farthest);
      if (holds(offset)) offsets.push_back(offset);
    }
    return offsets;
  };
  std::vector<int64_t> offsets;
  if (method.table) {
    const std::vector<double>& head = structure.values[0];
    const float* row = method.table->values.data() + head_start * method.table->columns;
    int64_t changed = 1;  // NaN equals nothing
    while (changed < distances && !(std::abs(head[changed] - head[changed - 1]) > 0)) ++changed;
    offsets = try_each(changed < distances ? changed : 0, [&](int64_t offset) {
      const int64_t first = structure.first_distance - offset;
      return HasTable(e, head, BucketsOf(precision.frequencies, settings, first, distances), row);
    });
  }
  if (offsets.empty()) {
    const Changes changes(structure);
    offsets = try_each(changes.First(), [&](int64_t offset) {
      std::map<size_t, std::vector<Found>> found;
      TryT5(changes, structure.first_distance, {settings, precision.frequencies, offset, {}}, &found);
      return !found.empty();
    });
  }
  if (offsets.empty()) return usual;
  std::vector<int64_t> both;
  for (const int64_t offset : usual) {
    if (std::find(offsets.begin(), offsets.end(), offset) != offsets.end()) both.push_back(offset);
  }
  return both.empty() ? offsets : both;
}

absl::StatusOr<std::vector<BiasCandidate>> T5Candidates(const BiasEvidence& e, const BiasStructure& structure,
                                                        const BiasExplanation* asked, bool has_table,
                                                        int64_t most_values, const Cancellation& cancelled) {
  std::vector<BiasCandidate> candidates;
  const T5Settings* t5 = asked == nullptr ? nullptr : std::get_if<T5Settings>(&asked->method.settings);
  if (structure.follows != Follows::kDistance) return candidates;
  std::vector<T5Settings> all = Settings(t5);
  std::erase_if(all, [&](const T5Settings& settings) { return *settings.num_buckets > most_values / e.heads(); });
  std::vector<int64_t> offsets = UsualOffsets(e, structure);
  if (t5 != nullptr && std::find(offsets.begin(), offsets.end(), OffsetOf(*asked)) == offsets.end()) {
    offsets.push_back(OffsetOf(*asked));
  }
  for (const int64_t offset : offsets) {
    if (t5 == nullptr || !has_table || (IsPlaced(e, structure) && offset != OffsetOf(*asked))) continue;
    for (const T5Settings& settings : all) {
      POSENC_RETURN_IF_ERROR(cancelled());
      TryTable(e, structure, *asked, settings, offset, &candidates);
    }
  }
  if (IsConstant(structure)) return candidates;
  // Keyed by the number of buckets that have a value. More buckets fit more biases, so prefer the fewest.
  const Changes changes(structure);
  std::map<size_t, std::vector<Found>> found;
  if (t5 != nullptr && has_table) all.resize(1);  // a table that was given is not fitted to other buckets
  for (const int64_t offset : offsets) {
    for (const Frequencies arithmetic : {Frequencies::kExact, Frequencies::kFloat32}) {
      for (const T5Settings& settings : all) {
        POSENC_RETURN_IF_ERROR(cancelled());
        TryT5(changes, structure.first_distance, {settings, arithmetic, offset, {}}, &found);
      }
    }
  }
  if (found.empty()) return candidates;
  std::vector<Found>& simplest = found.begin()->second;
  const auto key = [t5](const Found& one) {
    const T5Settings& settings = one.settings;
    const bool as_asked = t5 != nullptr && *settings.num_buckets == *t5->num_buckets &&
                          *settings.max_distance == *t5->max_distance && *settings.bidirectional == *t5->bidirectional;
    return std::pair(!as_asked, *settings.num_buckets);
  };
  std::stable_sort(simplest.begin(), simplest.end(),
                   [&key](const Found& a, const Found& b) { return key(a) < key(b); });
  for (const Found& one : simplest) {
    POSENC_ASSIGN_OR_RETURN(BiasTable table,
                            FirstValues(e, structure.mask, one.arithmetic, one.settings, one.offset, cancelled));
    candidates.push_back(CandidateOf(e, std::move(table), one));
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
  return table;
}

}  // namespace posenc::diagnose
