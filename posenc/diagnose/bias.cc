#include "posenc/diagnose/bias.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/diagnose/bias_candidates.h"
#include "posenc/methods/bias/bias.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc::diagnose {
namespace {

constexpr int64_t kFarthestPosition = int64_t{1} << 30;

bool IsBetter(const Comparison& a, const Comparison& b) {
  return std::pair(-a.share(), a.mean_log()) < std::pair(-b.share(), b.mean_log());
}

// True if the method cannot be computed for this bias; false if the call was cancelled or failed otherwise.
bool CannotBe(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsResourceExhausted(status);
}

// Prefixes fields of the expected method with "expected"; renames fields of the geometry to those of the request.
absl::Status OfExpected(const absl::Status& status) {
  if (!CannotBe(status)) return status;
  const ErrorDetails details = DetailsOf(status);
  if (!details.field.starts_with("geometry")) {
    return Renamed(status, [](std::string_view field) {  // the layout's errors name the method as GenerateBias does
      if (field.starts_with("method.")) field.remove_prefix(std::string_view("method.").size());
      return std::string("expected.") + std::string(field);
    });
  }
  if (absl::IsResourceExhausted(status)) return TooLarge("bias.shape", details.value, details.limit);
  return InvalidArgument(details.reason, "query_offset", details.value, details.limit);
}

// True if the bias does not depend on the queries' position.
bool IsWithoutPlace(const BiasMethod& method) {
  const auto* alibi = std::get_if<AlibiSettings>(&method.settings);
  return WindowOf(method) || std::holds_alternative<NopeSettings>(method.settings) ||
         (alibi != nullptr && IsKeyOnly(alibi->form));
}

class Search {
 public:
  Search(const BiasEvidence& evidence, const BiasStructure& structure, const Limits& limits, WorkPool& pool,
         const Cancellation& cancelled, double tolerance_ulp)
      : evidence_(evidence),
        structure_(structure),
        limits_(limits),
        pool_(pool),
        cancelled_(cancelled),
        tolerance_ulp_(tolerance_ulp) {}

  // Proves what was asked for, at the query offset that fits best.
  absl::StatusOr<BiasExplanation> ProveAsked(AskedBias asked) const {
    POSENC_RETURN_IF_ERROR(OfExpected(Complete(asked.method, limits_)));
    POSENC_RETURN_IF_ERROR(CheckFits(asked));
    const auto* t5 = std::get_if<T5Settings>(&asked.method.settings);
    const bool fit = t5 != nullptr && !asked.method.table;
    const bool placed = !IsWithoutPlace(asked.method);
    std::optional<BiasExplanation> best;
    const auto offsets = fit ? UsualOffsets(evidence_, structure_) : QueryOffsets(evidence_, structure_);
    for (const int64_t offset : offsets) {
      BiasExplanation one{.method = asked.method, .precision = asked.precision, .asked = true};
      one.sentence = asked.of_model ? "the model's bias" : "the settings' bias";
      if (fit) {
        POSENC_ASSIGN_OR_RETURN(one.method.table, FirstValues(evidence_, structure_.mask, asked.precision.frequencies,
                                                              *t5, offset, cancelled_));
        one.sentence += ", with a table of the first value found in each bucket";
        const auto& table = one.method.table->values;
        one.free_values = std::count_if(table.begin(), table.end(), [](float value) { return value != 0; });
      }
      one.geometry = Geometry(offset, asked.head_start.value_or(0));
      if (WindowOf(asked.method)) one.geometry.query = std::monostate();
      if (placed) one.sentence += Place(evidence_, offset);
      const absl::Status status =
          OfExpected(Prove(evidence_, structure_.mask, tolerance_ulp_, limits_, pool_, cancelled_, &one));
      if (best && CannotBe(status)) continue;
      POSENC_RETURN_IF_ERROR(status);
      if (!best || IsBetter(one.comparison, best->comparison)) best = std::move(one);
      if (!placed || best->comparison.share() == 1) break;
    }
    return *std::move(best);
  }

  // Returns the first variant that gives the same bytes, else the nearest one; absent if none can be computed.
  absl::StatusOr<std::optional<BiasExplanation>> ProveCandidate(const BiasCandidate& candidate) const {
    std::optional<BiasExplanation> best;
    for (const BiasVariant& variant : candidate.variants) {
      BiasExplanation one{.method = variant.method,
                          .precision = variant.precision,
                          .geometry = Geometry(candidate.query_offset, candidate.head_start),
                          .free_values = candidate.free_values,
                          .sentence = candidate.sentence + variant.suffix};
      const absl::Status status = Prove(evidence_, structure_.mask, tolerance_ulp_, limits_, pool_, cancelled_, &one);
      if (CannotBe(status)) continue;
      POSENC_RETURN_IF_ERROR(status);
      if (!best || IsBetter(one.comparison, best->comparison)) best = std::move(one);
      if (best->comparison.share() == 1) break;
    }
    return best;
  }

 private:
  absl::Status CheckFits(const AskedBias& asked) const {
    const int64_t here = evidence_.heads();
    if (const auto window = WindowOf(asked.method);
        window && (evidence_.queries() != window->count() || evidence_.keys() != window->count())) {
      return InvalidArgument("MISMATCH", "bias.shape", ToString(evidence_.bias.shape),
                             fmt::format("must have Sq and Sk {}, the tokens in expected's window", window->count()));
    }
    const std::optional<int64_t> heads = HeadsOf(asked.method);
    if (asked.head_start && !heads) {
      return InvalidArgument("NOT_READ", "head_start", "",
                             "must be absent if expected does not give its number of heads");
    }
    if (asked.head_start && (*asked.head_start < 0 || *asked.head_start > *heads - here)) {
      return InvalidArgument("OUT_OF_RANGE", "head_start", fmt::format("{}", *asked.head_start),
                             fmt::format("must place the {} heads of bias among expected's {} heads", here, *heads));
    }
    if (!heads || asked.head_start || *heads == here) return absl::OkStatus();
    return InvalidArgument(
        "MISMATCH", "bias.shape", fmt::format("{} heads", here),
        fmt::format("must be {}, as in expected, unless head_start gives the first head of bias", *heads));
  }

  BiasGeometry Geometry(int64_t offset, int64_t head_start) const {
    return {.query_length = evidence_.queries(),
            .key_length = evidence_.keys(),
            .query = OffsetPositions{offset},
            .head_start = head_start,
            .head_count = evidence_.heads()};
  }

  const BiasEvidence& evidence_;
  const BiasStructure& structure_;
  const Limits& limits_;
  WorkPool& pool_;
  const Cancellation& cancelled_;
  const double tolerance_ulp_;
};

}  // namespace

int64_t OffsetOf(const BiasExplanation& explanation) {
  const auto* offset = std::get_if<OffsetPositions>(&explanation.geometry.query);
  return offset == nullptr ? 0 : offset->offset;
}

std::vector<double> SlopesHere(const BiasExplanation& explanation, const AlibiSettings& alibi) {
  const Matrix<double> slopes = AlibiSlopes(explanation.precision.frequencies, alibi);
  if (!slopes.shared) return slopes.values;
  const auto first = slopes.values.begin() + *explanation.geometry.head_start;
  return {first, first + *explanation.geometry.head_count};
}

namespace {

// Compares what was asked for with simple changes of the data: the bias was transposed, negated or multiplied; or the
// table was read in the other order of its axes.
absl::StatusOr<std::vector<BiasChange>> ProveChanges(const BiasEvidence& e, const BiasStructure& structure,
                                                     const AskedBias& asked, double ratio, const Limits& limits,
                                                     WorkPool& pool, const Cancellation& cancelled, double tolerance) {
  std::vector<BiasChange> changes;
  const auto add = [&](const BiasEvidence& changed, const AskedBias& wanted, Departure departure) -> absl::Status {
    auto one = Search(changed, structure, limits, pool, cancelled, tolerance).ProveAsked(wanted);
    if (!one.ok()) return cancelled();
    if (one->fits()) changes.push_back({*std::move(one), std::move(departure)});
    return absl::OkStatus();
  };
  if (e.queries() == e.keys() && e.queries() > 1 && structure.mask.kind == MaskKind::kNone) {
    BiasEvidence transposed = e;
    transposed.transposed = true;
    POSENC_RETURN_IF_ERROR(
        add(transposed, asked, {"TRANSPOSED", "the bias is transposed: queries and keys are exchanged"}));
  }
  if (std::isfinite(ratio) && ratio != 0 && ratio != 1 && structure.mask.kind == MaskKind::kNone) {
    for (const double divisor : {ratio, 1 / Snap(1 / ratio, 1e-2), Snap(ratio, 1e-2)}) {
      BiasEvidence scaled = e;
      scaled.divisor = divisor;
      const size_t before = changes.size();
      POSENC_RETURN_IF_ERROR(add(
          scaled, asked,
          divisor == -1            ? Departure{"SIGN", "the bias has the wrong sign"}
          : std::fabs(divisor) < 1 ? Departure{"SCALE", fmt::format("the bias was divided by {}", Short(1 / divisor))}
                                   : Departure{"SCALE", fmt::format("the bias was multiplied by {}", Short(divisor))}));
      if (changes.size() > before) break;
    }
  }
  if (!asked.method.table || asked.method.table->rows < 2 || asked.method.table->columns < 2) return changes;
  const BiasTable& table = *asked.method.table;
  for (const bool by_bucket : {true, false}) {
    AskedBias other = asked;
    for (int64_t h = 0; h < table.rows; ++h) {
      for (int64_t n = 0; n < table.columns; ++n) {
        // The port read the list in the other order of the axes.
        const int64_t at = by_bucket ? h * table.columns + n : n * table.rows + h;
        const int64_t from = by_bucket ? at % table.rows * table.columns + at / table.rows : at;
        other.method.table->values[h * table.columns + n] = table.values[from];
      }
    }
    POSENC_RETURN_IF_ERROR(add(e, other, {"TABLE", "the table was read in the other order of heads and buckets"}));
    if (!changes.empty()) break;
  }
  return changes;
}

// True if both describe the same bias by different settings.
bool AreOne(const BiasExplanation& a, const BiasExplanation& b) {
  if (a.comparison.equal() != b.comparison.equal()) return false;
  const auto *alibi = std::get_if<AlibiSettings>(&a.method.settings),
             *other = std::get_if<AlibiSettings>(&b.method.settings);
  if (alibi != nullptr && other != nullptr) {
    const auto key = [](const AlibiSettings& s, const BiasExplanation& e) {
      return std::tuple(s.form, s.bias_dtype.value_or(DType::kFP32), s.position_mask.has_value(),
                        IsKeyOnly(s.form) ? 0 : OffsetOf(e), SlopesHere(e, s));
    };
    return key(*alibi, a) == key(*other, b);
  }
  const auto *t5 = std::get_if<T5Settings>(&a.method.settings), *t5_other = std::get_if<T5Settings>(&b.method.settings);
  if (t5 == nullptr || t5_other == nullptr || OffsetOf(a) != OffsetOf(b)) return false;
  const auto key = [](const T5Settings& s) { return std::tuple(*s.num_buckets, *s.max_distance, *s.bidirectional); };
  return key(*t5) == key(*t5_other);
}

// Adds to the sentence of `found` that ALiBi has the slopes asked for, but another form.
void NameOtherForm(const BiasExplanation& asked, const FoundMask& mask, BiasExplanation* found) {
  const auto *wanted = std::get_if<AlibiSettings>(&asked.method.settings),
             *alibi = std::get_if<AlibiSettings>(&found->method.settings);
  if (wanted == nullptr || alibi == nullptr || wanted->form == alibi->form) return;
  if (wanted->position_mask || SlopesHere(asked, *wanted) != SlopesHere(*found, *alibi)) return;
  found->sentence += "; the expected slopes, in another form";
  // If queries see no later key, the forms differ by a constant per row.
  const bool causal = mask.kind == MaskKind::kCausal || mask.kind == MaskKind::kWindow;
  if (causal && mask.offset <= OffsetOf(*found)) found->sentence += ": equal after softmax";
}

}  // namespace

DType ComparedAs(DType dtype) { return dtype == DType::kFP64 ? DType::kFP32 : dtype; }

absl::StatusOr<BiasDiagnosis> DiagnoseBias(const BiasEvidence& e, const std::optional<AskedBias>& asked, size_t most,
                                           const Limits& limits, WorkPool& pool, const Cancellation& cancelled,
                                           double tolerance_ulp) {
  if (e.query_offset && (*e.query_offset < -kFarthestPosition || *e.query_offset > kFarthestPosition)) {
    return InvalidArgument("OUT_OF_RANGE", "query_offset", fmt::format("{}", *e.query_offset), "must be -2^30 .. 2^30");
  }
  BiasDiagnosis diagnosis;
  POSENC_ASSIGN_OR_RETURN(diagnosis.structure, FindStructure(e, limits, cancelled));
  const BiasStructure& structure = diagnosis.structure;
  diagnosis.sentence = Describe(e, structure);
  const Search search(e, structure, limits, pool, cancelled, tolerance_ulp);
  auto& found = diagnosis.explanations;
  const T5Settings* asked_t5 = nullptr;
  if (asked) {
    POSENC_ASSIGN_OR_RETURN(found.emplace_back(), search.ProveAsked(*asked));
    asked_t5 = std::get_if<T5Settings>(&found[0].method.settings);
  }
  std::vector<BiasCandidate> candidates = AlibiCandidates(e, structure);
  POSENC_ASSIGN_OR_RETURN(std::vector<BiasCandidate> t5, T5Candidates(e, structure, asked_t5, cancelled));
  std::move(t5.begin(), t5.end(), std::back_inserter(candidates));
  if (structure.follows == Follows::kNothing && structure.mask.cells < e.batch() * e.heads() * e.queries() * e.keys()) {
    BiasCandidate nope{.query_offset = UsualOffsets(e, structure)[0], .sentence = "no bias, only the mask"};
    nope.variants.push_back({{NopeSettings{e.heads()}}, {}, ""});
    candidates.push_back(std::move(nope));
  }
  for (const BiasCandidate& candidate : candidates) {
    POSENC_ASSIGN_OR_RETURN(std::optional<BiasExplanation> one, search.ProveCandidate(candidate));
    if (!one) continue;
    const auto same = [&one](const BiasExplanation& other) { return AreOne(*one, other); };
    if (std::any_of(found.begin(), found.end(), same)) continue;
    if (asked) NameOtherForm(found[0], structure.mask, &*one);
    found.push_back(*std::move(one));
  }
  std::stable_sort(found.begin(), found.end(), [](const BiasExplanation& a, const BiasExplanation& b) {
    return IsBetter(a.comparison, b.comparison);
  });
  std::vector<BiasChange> changes;
  const auto wanted = std::find_if(found.begin(), found.end(), [](const BiasExplanation& one) { return one.asked; });
  if (asked && !wanted->fits()) {
    POSENC_ASSIGN_OR_RETURN(changes,
                            ProveChanges(e, structure, *asked, wanted->ratio, limits, pool, cancelled, tolerance_ulp));
  }
  diagnosis.verdict = JudgeBias(e, diagnosis, asked, changes, tolerance_ulp);
  for (size_t n = 0; n < found.size(); ++n) found[n].same_as = found[n].comparison.share() == 1 ? 0 : n;
  diagnosis.undecided = Doubts(e, diagnosis);
  if (found.size() > most) {
    // Keep what was asked for beside the best, however badly it fits.
    const auto kept = std::find_if(found.begin() + static_cast<ptrdiff_t>(most), found.end(),
                                   [](const BiasExplanation& one) { return one.asked; });
    if (most > 1 && kept != found.end()) {
      kept->same_as = kept->same_as == 0 ? 0 : most - 1;
      found[most - 1] = std::move(*kept);
    }
    found.resize(most);
  }
  return diagnosis;
}

}  // namespace posenc::diagnose
