#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "posenc/diagnose/bias_verdict.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc::diagnose {
namespace {

bool IsByDistance(AlibiForm form) { return !IsKeyOnly(form); }

// Finds the departures of an explanation from the expected bias.
class BiasDepartures {
 public:
  BiasDepartures(const BiasEvidence& e, const BiasStructure& structure, const BiasExplanation& found,
                 const BiasExplanation& asked)
      : e_(e),
        structure_(structure),
        found_(found),
        asked_(asked),
        elsewhere_(OffsetOf(found) != OffsetOf(asked) && IsPlaced(e, structure)) {}

  FittedFault All() && {
    const auto *alibi = std::get_if<AlibiSettings>(&found_.method.settings),
               *wanted_alibi = std::get_if<AlibiSettings>(&asked_.method.settings);
    const auto *t5 = std::get_if<T5Settings>(&found_.method.settings),
               *wanted_t5 = std::get_if<T5Settings>(&asked_.method.settings);
    if (alibi != nullptr && wanted_alibi != nullptr) {
      AddOfAlibi(*alibi, *wanted_alibi);
    } else if (t5 != nullptr && wanted_t5 != nullptr) {
      AddOfT5(*t5, *wanted_t5);
    } else if (found_.method.settings.index() == asked_.method.settings.index() && elsewhere_) {
      AddOffset();
    } else {
      fault_.Add(FittedFault::Of("METHOD", found_.sentence, found_.free_values));
    }
    fault_.gives_bytes = found_.comparison.share() == 1;
    return std::move(fault_);
  }

 private:
  void AddOffset() {
    if (elsewhere_) {
      fault_.Add(FittedFault::Of("QUERY_OFFSET", OffsetFault(e_, OffsetOf(found_) - OffsetOf(asked_)), 1));
    }
  }

  void AddOfT5(const T5Settings& t5, const T5Settings& wanted) {
    const bool same = *t5.num_buckets == *wanted.num_buckets && *t5.max_distance == *wanted.max_distance &&
                      *t5.bidirectional == *wanted.bidirectional;
    if (!same) return fault_.Add(FittedFault::Of("BUCKETS", found_.sentence, found_.free_values));
    if (asked_.free_values > 0 && elsewhere_) {
      fault_.free_values += found_.free_values;
    } else if (auto table = TableFault(structure_, asked_, OffsetOf(found_), ComparedAs(e_.bias.dtype))) {
      fault_.Add(*std::move(table));
    } else if (!elsewhere_) {  // as by logarithms in float32
      fault_.Add(FittedFault::Of("BUCKETS", found_.sentence));
    }
    AddOffset();
  }

  void AddOfAlibi(const AlibiSettings& alibi, const AlibiSettings& wanted) {
    const std::vector<double> slopes = SlopesHere(found_, alibi), asked_slopes = SlopesHere(asked_, wanted);
    // Float32 gives the same heads other slopes by the same rule.
    const bool same = AreSameSlopes(slopes, asked_slopes) ||
                      (alibi.num_heads == wanted.num_heads && SlopesHere(found_, wanted) == slopes &&
                       found_.geometry.head_start == asked_.geometry.head_start);
    if (!same) {
      FittedFault one = SlopesFault(slopes, asked_slopes, *asked_.geometry.head_start,
                                    wanted.alibi_bias_max.value_or(8), ComparedAs(e_.bias.dtype));
      if (alibi.num_heads > e_.heads() && std::holds_alternative<AlibiSlopeRule>(alibi.slopes)) {
        // Slopes of more heads may be those of another alibi_bias_max.
        const std::string& words = one.departures[0].message;
        const bool of_max = words.find("alibi_bias_max") != std::string::npos;
        one = FittedFault::Of("SLOPES", found_.sentence + (of_max ? "; or " + words : ""), 1);
      }
      fault_.Add(std::move(one));
    }
    const int64_t first = OffsetOf(found_);
    const bool no_later = structure_.mask.HidesLater(first) || first >= e_.keys() - 1;
    const bool alike = no_later && IsByDistance(alibi.form) && IsByDistance(wanted.form);
    if (alibi.form != wanted.form && !alike) {
      fault_.Add(FittedFault::Of("FORM", found_.sentence));
    } else if (IsByDistance(alibi.form)) {
      AddOffset();
    }
    if (fault_.departures.empty()) fault_.Add(FittedFault::Of("ROUNDING", found_.sentence));
  }

  const BiasEvidence& e_;
  const BiasStructure& structure_;
  const BiasExplanation &found_, &asked_;
  const bool elsewhere_;
  FittedFault fault_;
};

Fault FaultOf(FittedFault found, int64_t values) {
  Fault fault{.departures = std::move(found.departures), .free_values = found.free_values, .values = values};
  fault.sentence = Sentence(fault.departures);
  return fault;
}

}  // namespace

int64_t CountValues(const BiasEvidence& e, const BiasStructure& structure) {
  int64_t known = 0;
  for (const std::vector<double>& head : structure.values) {
    known += std::count_if(head.begin(), head.end(), [](double value) { return !std::isnan(value); });
  }
  return structure.values.empty() ? e.heads() * e.queries() * e.keys() : known;
}

const BiasExplanation* BestExplanation(const BiasEvidence& e, const ExplainedBias& explained) {
  const int64_t values = CountValues(e, explained.diagnosis.structure);
  const BiasExplanation* best = nullptr;
  for (const BiasExplanation& one : explained.diagnosis.explanations) {
    if (!one.fits() || one.asked || 2 * one.free_values > values) continue;
    const bool as_near = best != nullptr && one.comparison.equal() == best->comparison.equal();
    if (best == nullptr || (as_near && one.free_values < best->free_values)) best = &one;
  }
  return best;
}

std::optional<Fault> NameBiasFault(const BiasEvidence& e, const ExplainedBias& explained) {
  const BiasExplanation& asked = *explained.asked();
  const int64_t values = CountValues(e, explained.diagnosis.structure);
  if (asked.fits() || asked.comparison.elements() == 0) return std::nullopt;
  std::vector<FittedFault> found = explained.changes;
  std::erase_if(found, [values](const FittedFault& one) { return 2 * one.free_values > values; });
  if (const BiasExplanation* best = BestExplanation(e, explained)) {
    FittedFault of_best = BiasDepartures(e, explained.diagnosis.structure, *best, asked).All();
    // It says of which heads slopes were multiplied.
    found.insert(of_best.Has("SCALE") ? found.begin() : found.end(), std::move(of_best));
  }
  if (found.empty()) return std::nullopt;
  // A fitted ratio often comes near the data; a whole number of positions that gives every bit hardly does by chance.
  const auto key = [](const FittedFault& one) {
    return std::pair(one.free_values, !(one.gives_bytes && one.Has("QUERY_OFFSET")));
  };
  std::stable_sort(found.begin(), found.end(),
                   [&key](const FittedFault& a, const FittedFault& b) { return key(a) < key(b); });
  Fault fault = FaultOf(found[0], values);
  std::set<std::string> codes = {fault.departures[0].code};
  for (size_t n = 1; n < found.size() && found[0].gives_bytes; ++n) {
    const bool rounded = found[0].Has("ROUNDING") && found[n].Has("SCALE");  // of one slope
    const bool new_code = std::none_of(found[n].departures.begin(), found[n].departures.end(),
                                       [&](const Departure& one) { return codes.count(one.code) > 0; });
    if (!found[n].gives_bytes || rounded || !new_code || found[n].free_values > found[0].free_values + 1) continue;
    for (const Departure& one : found[n].departures) codes.insert(one.code);
    fault.alternatives.push_back(found[n].departures);
  }
  return fault;
}

std::optional<Fault> NameBetterFit(const BiasEvidence& e, const ExplainedBias& explained) {
  const BiasExplanation &asked = *explained.asked(), *best = BestExplanation(e, explained);
  // Slopes that were taken from the data give the bits of any roundings.
  if (best == nullptr || best->free_values > 0 || best->comparison.share() < 1 || asked.comparison.share() == 1) {
    return std::nullopt;
  }
  const auto *alibi = std::get_if<AlibiSettings>(&best->method.settings),
             *wanted = std::get_if<AlibiSettings>(&asked.method.settings);
  if (alibi == nullptr || wanted == nullptr) return std::nullopt;
  // Slopes by powers in float32 are right.
  const bool moved = OffsetOf(*best) != OffsetOf(asked) && IsByDistance(alibi->form) && IsByDistance(wanted->form);
  if (!moved && AreNearSlopes(SlopesHere(*best, *alibi), SlopesHere(asked, *wanted))) return std::nullopt;
  FittedFault found = BiasDepartures(e, explained.diagnosis.structure, *best, asked).All();
  if (found.free_values > 0 && !found.Has("QUERY_OFFSET")) return std::nullopt;
  return FaultOf(std::move(found), CountValues(e, explained.diagnosis.structure));
}

}  // namespace posenc::diagnose
