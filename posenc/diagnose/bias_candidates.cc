#include "posenc/diagnose/bias_candidates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "posenc/methods/alibi.h"
#include "posenc/methods/t5.h"

namespace posenc::diagnose {
namespace {

// The first query's positions that the data, the caller or habit suggest, each once.
std::vector<int64_t> Offsets(const BiasEvidence& e, const BiasStructure& structure,
                             const std::vector<int64_t>& measured) {
  std::vector<int64_t> offsets;
  const auto add = [&offsets](int64_t offset) {
    if (std::find(offsets.begin(), offsets.end(), offset) == offsets.end()) offsets.push_back(offset);
  };
  if (e.query_offset) add(*e.query_offset);
  const MaskKind kind = structure.mask.kind;
  if (kind == MaskKind::kCausal || kind == MaskKind::kWindow || kind == MaskKind::kPrefix) add(structure.mask.offset);
  for (const int64_t offset : measured) add(offset);
  add(e.keys() - e.queries());
  add(0);
  return offsets;
}

std::string Place(const BiasEvidence& e, int64_t offset) {
  if (e.query_offset == offset) return "";
  if (e.query_offset) return fmt::format("; the first query stands at {}, not {}", offset, *e.query_offset);
  return fmt::format("; the first query stands at {}", offset);
}

// Values of one head by distance.
class ByDistance {
 public:
  ByDistance(const BiasStructure& structure, size_t head)
      : values_(structure.values[head]), first_(structure.first_distance) {}

  int64_t first() const { return first_; }
  int64_t last() const { return first_ + static_cast<int64_t>(values_.size()) - 1; }
  // NaN where there is none.
  double At(int64_t distance) const {
    const int64_t n = distance - first_;
    return n < 0 || n >= static_cast<int64_t>(values_.size()) ? NAN : values_[n];
  }
  // Where the greatest is; of equals the first.
  int64_t Peak() const {
    int64_t peak = first_;
    for (int64_t d = first_; d <= last(); ++d) {
      if (!std::isnan(At(d)) && !(At(d) <= At(peak))) peak = d;
    }
    return peak;
  }

 private:
  const std::vector<double>& values_;
  const int64_t first_;
};

// The slope towards earlier or later keys (side -1 or 1) of a head whose value at `origin` is 0: by the neighbour,
// which has it exactly, or else by the nearest value there is. NaN: none.
double Slope(const ByDistance& values, int64_t origin, int64_t side) {
  const int64_t end = side < 0 ? origin - values.first() : values.last() - origin;
  for (int64_t n = 1; n <= end; ++n) {
    const double value = values.At(origin + side * n);
    if (!std::isnan(value)) return -value / static_cast<double>(n);
  }
  return NAN;
}

Matrix<double> AsMatrix(const std::vector<double>& slopes) {
  Matrix<double> matrix;
  matrix.values = slopes;
  matrix.columns = static_cast<int64_t>(slopes.size());
  return matrix;
}

struct NamedRule {
  AlibiSlopeRule rule;
  const char* name;
};
constexpr NamedRule kRules[] = {{AlibiSlopeRule::kPowerOfTwo, "the released code's slopes"},
                                {AlibiSlopeRule::kGeometric, "the paper's slopes 2^(-8(h+1)/H)"}};

// Each rule whose slopes are near these, and then these themselves.
void AddAlibi(const BiasEvidence& e, AlibiForm form, const char* form_name, int64_t offset,
              const std::vector<double>& slopes, const std::vector<double>& future, std::vector<BiasCandidate>* out) {
  AlibiSettings settings{.num_heads = e.heads(), .form = form};
  if (form == AlibiForm::kAsymmetric) settings.future_slopes = AsMatrix(future);
  const std::string place = Place(e, offset);
  const auto add = [&](const std::string& which) {
    out->push_back({{settings}, offset, fmt::format("ALiBi, {}, with {}{}", form_name, which, place)});
    if (e.bias.dtype != DType::kBF16 && e.bias.dtype != DType::kFP32) return;
    out->push_back(out->back());
    std::get<AlibiSettings>(out->back().method.settings).bias_dtype = DType::kBF16;
    out->back().sentence += ", computed in bfloat16";
  };
  std::set<std::vector<double>> known;
  for (const auto& [rule, name] : kRules) {
    settings.slopes = rule;
    AlibiSettings complete = settings;
    if (!Complete(complete, Limits()).ok()) continue;
    const Matrix<double> wanted = AlibiSlopes(Frequencies::kExact, complete);
    bool near = true;
    for (size_t h = 0; h < slopes.size(); ++h) near &= std::abs(slopes[h] / wanted.values[h] - 1) < 0x1p-6;
    if (near && known.insert(wanted.values).second) add(name);
  }
  std::vector<double> own = slopes;
  for (double& slope : own) slope = static_cast<float>(slope);
  if (known.contains(own) || std::any_of(own.begin(), own.end(), [](double s) { return !(s > 0); })) return;
  settings.slopes = GivenSlopes{AsMatrix(own)};
  add(own.size() == 1 ? fmt::format("a slope of its own, {}", own[0])
                      : fmt::format("slopes of its own, {} .. {}", own.front(), own.back()));
}

// Whether values fall linearly from `origin` to that side, as far as the type can tell.
bool IsLinear(const ByDistance& values, int64_t origin, int64_t side, double slope, DType dtype) {
  const double tolerance = dtype == DType::kBF16 ? 0x1p-6 : dtype == DType::kFP16 ? 0x1p-9 : 0x1p-20;
  const int64_t end = side < 0 ? origin - values.first() : values.last() - origin;
  for (int64_t n = 0; n <= end; ++n) {
    const double value = values.At(origin + side * n), wanted = -slope * static_cast<double>(n);
    if (!std::isnan(value) && std::abs(value - wanted) > tolerance * std::abs(wanted)) return false;
  }
  return true;
}

void AddByDistance(const BiasEvidence& e, const BiasStructure& structure, int64_t origin,
                   std::vector<BiasCandidate>* out) {
  std::vector<double> slopes, future;
  bool causal = true, symmetric = true, later = false, linear = true;
  for (int64_t h = 0; h < e.heads(); ++h) {
    const ByDistance values(structure, h);
    const double slope = Slope(values, origin, -1), right = Slope(values, origin, 1);
    slopes.push_back(slope);
    future.push_back(right);
    linear &= std::isfinite(slope) && slope != 0 && IsLinear(values, origin, -1, slope, e.bias.dtype);
    later |= !std::isnan(right);
    for (int64_t d = origin + 1; d <= values.last(); ++d) causal &= std::isnan(values.At(d)) || values.At(d) == 0;
    symmetric &= std::isnan(right) || IsLinear(values, origin, 1, slope, e.bias.dtype);
    linear &= std::isnan(right) || right == 0 || IsLinear(values, origin, 1, right, e.bias.dtype);
  }
  if (!linear) return;
  if (causal) AddAlibi(e, AlibiForm::kCausal, "-slope (i - j) up to the query", origin, slopes, {}, out);
  if (symmetric) AddAlibi(e, AlibiForm::kSymmetric, "-slope |i - j|", origin, slopes, {}, out);
  if (later && !causal && !symmetric) {
    AddAlibi(e, AlibiForm::kAsymmetric, "with other slopes after the query", origin, slopes, future, out);
  }
}

void AddByKey(const BiasEvidence& e, const std::vector<std::vector<double>>& values, std::vector<BiasCandidate>* out) {
  const int64_t last = e.keys() - 1;
  std::vector<double> from_first, to_last;
  for (const std::vector<double>& head : values) {
    // By the neighbour of the key whose value is 0, and else by the farthest.
    from_first.push_back(last >= 1 && std::isfinite(head[1]) ? head[1] : head[last] / static_cast<double>(last));
    to_last.push_back(last >= 1 && std::isfinite(head[last - 1]) ? -head[last - 1]
                                                                 : -head[0] / static_cast<double>(last));
  }
  const auto positive = [](const std::vector<double>& slopes) {
    return std::all_of(slopes.begin(), slopes.end(), [](double s) { return std::isfinite(s) && s > 0; });
  };
  const int64_t offset = e.query_offset.value_or(e.keys() - e.queries());
  if (positive(from_first)) AddAlibi(e, AlibiForm::kBloom, "slope * j as BLOOM has it", offset, from_first, {}, out);
  if (positive(to_last)) AddAlibi(e, AlibiForm::kMpt, "slope * (j - (Sk - 1)) as MPT has it", offset, to_last, {}, out);
}

// The table by bucket, [buckets] of one head, where each bucket has one value; NaN for one that no distance has.
// Absent: a bucket has two, or none but the first is shared by distances, so that any values would do.
std::optional<std::vector<double>> TableOf(const ByDistance& values, const std::vector<int32_t>& buckets,
                                           size_t count) {
  std::vector<double> table(count, NAN);
  bool shared = false;
  for (size_t n = 0; n < buckets.size(); ++n) {
    const double value = values.At(values.first() + static_cast<int64_t>(n));
    double& entry = table[buckets[n]];
    if (std::isnan(value)) continue;
    shared |= !std::isnan(entry) && buckets[n] != 0;
    if (std::isnan(entry)) entry = value;
    if (entry != value) return std::nullopt;
  }
  if (!shared) return std::nullopt;
  return table;
}

}  // namespace

std::vector<BiasCandidate> AlibiCandidates(const BiasEvidence& e, const BiasStructure& structure) {
  std::vector<BiasCandidate> candidates;
  if (structure.follows == Follows::kDistance) {
    const ByDistance first(structure, 0);
    for (const int64_t origin : Offsets(e, structure, {first.Peak()})) {
      AddByDistance(e, structure, origin, &candidates);
    }
    if (e.queries() > 1) return candidates;
    AddByKey(e, structure.values, &candidates);  // of one query both are the same
  }
  if (structure.follows == Follows::kKey) AddByKey(e, structure.values, &candidates);
  return candidates;
}

std::vector<BiasCandidate> T5Candidates(const BiasEvidence& e, const BiasStructure& structure) {
  // By the number of buckets that have a value: the more there are, the more any bias fits, so the fewest say most.
  std::map<size_t, std::vector<BiasCandidate>> candidates;
  if (structure.follows != Follows::kDistance) return {};
  const ByDistance first(structure, 0);
  const int64_t count = first.last() - first.first() + 1;
  for (const int64_t offset : Offsets(e, structure, {})) {
    for (const bool bidirectional : {true, false}) {
      for (const int64_t num_buckets : {32, 16, 64, 128, 256, 320, 12, 8}) {
        for (const int64_t max_distance : {128, 20, 64, 256, 512, 800, 1024, 2048}) {
          T5Settings settings{num_buckets, max_distance, bidirectional};
          if (!Complete(settings).ok()) continue;
          const auto buckets = T5Buckets(Frequencies::kExact, settings, first.first() - offset, count);
          BiasTable table{.rows = e.heads(), .columns = num_buckets, .shared = false};
          std::set<int32_t> used;
          for (int64_t h = 0; h < e.heads(); ++h) {
            const auto head = TableOf(ByDistance(structure, h), buckets, num_buckets);
            if (!head) break;
            for (int64_t n = 0; n < num_buckets; ++n) {
              const bool known = !std::isnan((*head)[n]);
              if (known) used.insert(static_cast<int32_t>(n));
              table.values.push_back(known ? static_cast<float>((*head)[n]) : 0);
            }
          }
          if (table.values.size() != static_cast<size_t>(e.heads() * num_buckets)) continue;
          BiasCandidate candidate{{settings, table}, offset};
          candidate.sentence = fmt::format("T5, {} buckets up to a distance of {}, {}{}", num_buckets, max_distance,
                                           bidirectional ? "in both directions" : "of earlier keys", Place(e, offset));
          candidates[used.size()].push_back(std::move(candidate));
        }
      }
    }
  }
  return candidates.empty() ? std::vector<BiasCandidate>() : candidates.begin()->second;
}

}  // namespace posenc::diagnose
