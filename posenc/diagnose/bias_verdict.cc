#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/diagnose/bias_candidates.h"
#include "posenc/kernels/convert.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc::diagnose {
namespace {

bool AllNear(const std::vector<double>& found, const std::vector<double>& wanted, double ratio, double tolerance) {
  for (size_t h = 0; h < found.size(); ++h) {
    if (!(std::fabs(found[h] / (ratio * wanted[h]) - 1) <= tolerance)) return false;
  }
  return true;
}

double RoundedTo(DType dtype, double value) {
  switch (dtype) {
    case DType::kBF16: return Widen<BFloat16>(Narrow<BFloat16>(static_cast<float>(value)));
    case DType::kFP16: return Widen<Float16>(Narrow<Float16>(static_cast<float>(value)));
    default: return static_cast<float>(value);
  }
}

// Number of values by head and distance, or by head and key, that the data show.
int64_t ValuesOf(const BiasEvidence& e, const BiasStructure& structure) {
  int64_t known = 0;
  for (const std::vector<double>& head : structure.values) {
    known += std::count_if(head.begin(), head.end(), [](double value) { return !std::isnan(value); });
  }
  return structure.values.empty() ? e.heads() * e.queries() * e.keys() : known;
}

class BiasJudge {
 public:
  BiasJudge(const BiasEvidence& e, const BiasDiagnosis& diagnosis, double tolerance_ulp)
      : e_(e), diagnosis_(diagnosis), values_(ValuesOf(e, diagnosis.structure)) {
    verdict_.tolerance = {.ulp = tolerance_ulp, .wide_ulp = tolerance_ulp, .of_angle = 0};
    verdict_.bound = fmt::format("{} ulp of {}", Short(tolerance_ulp), Name(ComparedAs(e.bias.dtype)));
  }

  Verdict Unasked() {
    const BiasExplanation* best = Best();
    if (best == nullptr) {
      verdict_.sentence = diagnosis_.sentence;
    } else {
      verdict_.kind = VerdictKind::kMatches;
      verdict_.sentence = best->sentence;
    }
    return std::move(verdict_);
  }

  Verdict Judge(const BiasExplanation& asked, const std::vector<BiasChange>& changes) {
    const BiasExplanation* best = Best();
    if (asked.comparison.elements() == 0) {
      verdict_.sentence = diagnosis_.sentence;
      return std::move(verdict_);
    }
    if (asked.fits()) {
      const bool proven = best != nullptr && best->comparison.share() == 1 && asked.comparison.share() < 1;
      if (proven && !best->asked && DifferInSlopes(*best, asked)) {
        AddFault(Departures(*best, asked), best->free_values, asked);
      } else if (4 * asked.free_values > 3 * values_) {
        verdict_.sentence = fmt::format("the data show {} values, and {} of them make the table: any bias would fit",
                                        values_, asked.free_values);
      } else {
        verdict_.kind = VerdictKind::kMatches;
        const uint64_t equal = asked.comparison.equal(), all = asked.comparison.elements();
        verdict_.sentence = equal == all
                                ? fmt::format("all {} cells are equal, bit for bit", all)
                                : fmt::format("{} of {} cells are equal, all within {}", equal, all, verdict_.bound);
      }
      return std::move(verdict_);
    }
    if (!changes.empty()) {
      AddFault({changes[0].departure}, changes[0].departure.code == "SCALE" ? 1 : 0, asked);
      for (size_t n = 1; n < changes.size(); ++n) {
        verdict_.faults[0].alternatives.push_back({changes[n].departure});
      }
    } else if (best != nullptr) {
      AddFault(Departures(*best, asked), best->free_values, asked);
    } else {
      AddFault({}, 0, asked);
    }
    return std::move(verdict_);
  }

 private:
  // The explanation that fits with the fewest numbers taken from the data, among those with the most equal cells.
  const BiasExplanation* Best() const {
    const BiasExplanation* best = nullptr;
    for (const BiasExplanation& one : diagnosis_.explanations) {
      if (!one.fits() || one.asked || 2 * one.free_values > values_) continue;
      if (best == nullptr ||
          (one.comparison.equal() == best->comparison.equal() && one.free_values < best->free_values)) {
        best = &one;
      }
    }
    return best;
  }

  static const AlibiSettings* Alibi(const BiasExplanation& one) {
    return std::get_if<AlibiSettings>(&one.method.settings);
  }

  bool DifferInSlopes(const BiasExplanation& found, const BiasExplanation& asked) const {
    return Alibi(found) != nullptr && Alibi(asked) != nullptr &&
           SlopesHere(found, *Alibi(found)) != SlopesHere(asked, *Alibi(asked));
  }

  std::vector<Departure> Departures(const BiasExplanation& found, const BiasExplanation& asked) const {
    if (const AlibiSettings* alibi = Alibi(found), *wanted = Alibi(asked); alibi != nullptr && wanted != nullptr) {
      return AlibiDepartures(found, *alibi, asked, *wanted);
    }
    const auto *t5 = std::get_if<T5Settings>(&found.method.settings),
               *wanted = std::get_if<T5Settings>(&asked.method.settings);
    if (t5 == nullptr || wanted == nullptr) return {{"METHOD", found.sentence}};
    const bool same = *t5->num_buckets == *wanted->num_buckets && *t5->max_distance == *wanted->max_distance &&
                      *t5->bidirectional == *wanted->bidirectional;
    if (same && OffsetOf(found) != OffsetOf(asked)) return {{"QUERY_OFFSET", found.sentence}};
    return {{same ? "TABLE" : "BUCKETS", same ? "the table has other values" : found.sentence}};
  }

  std::vector<Departure> AlibiDepartures(const BiasExplanation& found, const AlibiSettings& alibi,
                                         const BiasExplanation& asked, const AlibiSettings& wanted) const {
    std::vector<Departure> departures;
    const std::vector<double> slopes = SlopesHere(found, alibi), asked_slopes = SlopesHere(asked, wanted);
    if (slopes != asked_slopes) {
      departures.push_back(*found.geometry.head_start > 0 && std::holds_alternative<AlibiSlopeRule>(alibi.slopes)
                               ? Departure{"SLOPES", found.sentence}
                               : SlopesDeparture(slopes, asked_slopes, e_.bias.dtype));
    }
    const FoundMask& mask = diagnosis_.structure.mask;
    const bool causal =
        (mask.kind == MaskKind::kCausal || mask.kind == MaskKind::kWindow) && mask.offset <= OffsetOf(found);
    const bool no_later = causal || e_.queries() == 1;
    const auto is_later_only = [](AlibiForm form) {
      return form == AlibiForm::kSymmetric || form == AlibiForm::kCausal || form == AlibiForm::kAsymmetric;
    };
    if (alibi.form != wanted.form && !(no_later && is_later_only(alibi.form) && is_later_only(wanted.form))) {
      departures.push_back({"FORM", causal ? "another form of ALiBi, equal after softmax" : found.sentence});
    } else if (OffsetOf(found) != OffsetOf(asked) && !IsKeyOnly(alibi.form)) {
      departures.push_back({"QUERY_OFFSET", fmt::format("the first query is at position {}", OffsetOf(found))});
    }
    if (departures.empty()) departures.push_back({"ROUNDING", found.sentence});
    return departures;
  }

  void AddFault(std::vector<Departure> departures, int64_t free_values, const BiasExplanation& asked) {
    const BiasMisfits& misfits = asked.misfits;
    Fault fault{.sentence = departures.empty() ? diagnosis_.sentence : Sentence(departures),
                .departures = std::move(departures),
                .free_values = free_values,
                .values = values_};
    Part part{.batch_rows = Ranges(misfits.batch_rows), .heads = Ranges(misfits.heads)};
    if (fault.departures.empty() || fault.departures[0].code == "BUCKETS") {
      part.distances = Ranges(misfits.distances);
      for (IndexRange& range : part.distances) range.first += 1 - e_.queries(), range.last += 1 - e_.queries();
    }
    if (fault.departures.empty()) part.tokens = Ranges(misfits.queries);
    fault.parts.push_back(std::move(part));
    verdict_.faults.push_back(std::move(fault));
    Conclude(TokenAxis{"query", "queries", e_.queries()}, true, &verdict_);
  }

  const BiasEvidence& e_;
  const BiasDiagnosis& diagnosis_;
  const int64_t values_;  // independent values that the data show
  Verdict verdict_;
};

}  // namespace

Departure SlopesDeparture(const std::vector<double>& found, const std::vector<double>& wanted, DType dtype) {
  constexpr double kNear = 0x1p-7;
  if (found.size() != wanted.size()) return {"SLOPES", "slopes of its own for each batch row"};
  const double ratio = found[0] / wanted[0];
  if (AllNear(found, wanted, -1, kNear)) return {"SIGN", "slopes have the wrong sign"};
  bool rounded = dtype != DType::kFP32;
  for (size_t h = 0; h < found.size(); ++h) {
    rounded &= static_cast<float>(found[h]) == static_cast<float>(RoundedTo(dtype, wanted[h]));
  }
  if (rounded) return {"ROUNDING", fmt::format("slopes were rounded to {}", Name(dtype))};
  if (found.size() > 1 && !AllNear(found, wanted, 1, kNear) && AllNear(found, wanted, ratio, kNear)) {
    const double step = std::exp2(8.0 / static_cast<double>(found.size()));  // ratio of adjacent heads' slopes
    const char* why = std::fabs(ratio / step - 1) < kNear   ? ", as if exponents began one head too early"
                      : std::fabs(ratio * step - 1) < kNear ? ", as if exponents began one head too late"
                                                            : "";
    return {"SCALE", fmt::format("slopes were {} by {}{}", std::fabs(ratio) < 1 ? "divided" : "multiplied",
                                 Short(Snap(std::fabs(ratio) < 1 ? 1 / ratio : ratio, 1e-5)), why)};
  }
  // Exponents in proportion: 2^(-m (h + 1) / H) with another m.
  const double power = std::log(found.back()) / std::log(wanted.back());
  bool proportional = std::isfinite(power) && std::fabs(power - 1) > 1e-3;
  for (size_t h = 0; h < found.size() && proportional; ++h) {
    proportional = std::fabs(std::log(found[h]) / std::log(wanted[h]) / power - 1) < 1e-2;
  }
  if (proportional) {
    return {"SLOPES",
            fmt::format("exponents of the slopes were multiplied by {}, as by an alibi_bias_max of {} instead "
                        "of 8",
                        Short(Snap(power, 1e-3)), Short(Snap(8 * power, 1e-3)))};
  }
  std::vector<double> reversed(wanted.rbegin(), wanted.rend());
  if (AllNear(found, reversed, 1, kNear)) return {"SLOPES", "slopes of the heads are in reverse order"};
  for (size_t h = 0; h < found.size(); ++h) {
    if (AllNear({found[h]}, {wanted[h]}, 1, kNear)) continue;
    return {"SLOPES", fmt::format("head {} has the slope {}, not {}", h, Short(found[h]), Short(wanted[h]))};
  }
  return {"SLOPES", fmt::format("other slopes were applied, {} in head 0, not {}", Short(found[0]), Short(wanted[0]))};
}

Verdict JudgeBias(const BiasEvidence& evidence, const BiasDiagnosis& diagnosis, const std::optional<AskedBias>& asked,
                  const std::vector<BiasChange>& transformed, double tolerance_ulp) {
  BiasJudge judge(evidence, diagnosis, tolerance_ulp);
  if (!asked) return judge.Unasked();
  const auto& found = diagnosis.explanations;
  const auto wanted = std::find_if(found.begin(), found.end(), [](const BiasExplanation& one) { return one.asked; });
  return judge.Judge(*wanted, transformed);
}

}  // namespace posenc::diagnose
