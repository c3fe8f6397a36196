#include "posenc/diagnose/bias.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/diagnose/bias_verdict.h"
#include "posenc/methods/bias/bias.h"
#include "posenc/methods/bias/bias_methods.h"

namespace posenc::diagnose {
namespace {

constexpr int64_t kFarthestPosition = int64_t{1} << 30;

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

// The offset at which most single heads of single batch rows are what was asked for; absent if none is anywhere.
absl::StatusOr<std::optional<int64_t>> CommonOffset(const BiasEvidence& e, const AskedBias& asked,
                                                    const BiasCall& call) {
  constexpr int64_t kMostHeads = 16;
  std::map<int64_t, int> count;
  for (int64_t n = 0; n < std::min(kMostHeads, e.batch() * e.heads()); ++n) {
    const int64_t b = n % e.batch(), h = (b + n / e.batch()) % e.heads();
    const BiasEvidence part = Crop(e, {{b, b}, {h, h}, {0, e.queries() - 1}});
    AskedBias of_part = asked;
    if (HeadsOf(asked.method)) of_part.head_start = asked.head_start.value_or(0) + h;
    POSENC_ASSIGN_OR_RETURN(const BiasStructure structure, FindStructure(part, call.limits, call.cancelled));
    const auto one = BiasSearch(part, structure, call).ProveAsked(of_part);
    POSENC_RETURN_IF_ERROR(call.cancelled());
    if (one.ok() && one->fits()) ++count[OffsetOf(*one)];
  }
  const auto most =
      std::max_element(count.begin(), count.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == count.end() ? std::nullopt : std::optional(most->first);
}

// Removes explanations beyond the first `most`, but keeps what was asked for, however badly it fits.
void Shorten(size_t most, std::vector<BiasExplanation>* found) {
  if (found->size() <= most) return;
  const auto kept = std::find_if(found->begin() + static_cast<ptrdiff_t>(most), found->end(),
                                 [](const BiasExplanation& one) { return one.asked; });
  if (most > 1 && kept != found->end()) {
    kept->same_as = kept->same_as == 0 ? 0 : most - 1;
    (*found)[most - 1] = std::move(*kept);
  }
  found->resize(most);
}

}  // namespace

DType ComparedAs(DType dtype) { return dtype == DType::kFP64 ? DType::kFP32 : dtype; }

std::vector<double> SlopesHere(const BiasExplanation& explanation, const AlibiSettings& alibi) {
  const Matrix<double> slopes = AlibiSlopes(explanation.precision.frequencies, alibi);
  if (!slopes.shared) return slopes.values;
  const auto first = slopes.values.begin() + *explanation.geometry.head_start;
  return {first, first + *explanation.geometry.head_count};
}

const BiasExplanation* ExplainedBias::asked() const {
  const auto& found = diagnosis.explanations;
  const auto asked = std::find_if(found.begin(), found.end(), [](const BiasExplanation& one) { return one.asked; });
  return asked == found.end() ? nullptr : &*asked;
}

absl::StatusOr<ExplainedBias> ExplainBias(const BiasEvidence& e, const std::optional<AskedBias>& asked,
                                          const BiasCall& call) {
  ExplainedBias explained;
  BiasDiagnosis& diagnosis = explained.diagnosis;
  POSENC_ASSIGN_OR_RETURN(diagnosis.structure, FindStructure(e, call.limits, call.cancelled));
  const BiasStructure& structure = diagnosis.structure;
  const BiasSearch search(e, structure, call);
  auto& found = diagnosis.explanations;
  if (asked) {
    BiasCall entirely = call;  // to know where it does not fit
    entirely.only_fits = false;
    const BiasSearch whole(e, structure, entirely);
    POSENC_ASSIGN_OR_RETURN(found.emplace_back(), whole.ProveAsked(*asked));
    if (!found[0].fits() && !IsPlaced(e, structure) && e.batch() * e.heads() > 1) {
      POSENC_ASSIGN_OR_RETURN(const std::optional<int64_t> offset, CommonOffset(e, *asked, entirely));
      AskedBias completed = *asked;
      POSENC_RETURN_IF_ERROR(Complete(completed.method, call.limits));
      if (offset) {
        POSENC_ASSIGN_OR_RETURN(found[0], whole.ProveAskedAt(completed, *offset));
      }
    }
  }
  std::vector<BiasCandidate> candidates = AlibiCandidates(e, structure, asked ? &found[0] : nullptr);
  POSENC_ASSIGN_OR_RETURN(
      std::vector<BiasCandidate> t5,
      T5Candidates(e, structure, asked ? &found[0] : nullptr, asked && asked->method.table && !asked->table_found,
                   call.limits.max_bias_values, call.cancelled));
  std::move(t5.begin(), t5.end(), std::back_inserter(candidates));
  if (structure.follows == Follows::kNothing && structure.mask.cells < e.batch() * e.heads() * e.queries() * e.keys()) {
    BiasCandidate nope{.query_offset = UsualOffsets(e, structure)[0],
                       .sentence = structure.mask.kind == MaskKind::kNone ? "no bias" : "no bias, only the mask"};
    nope.variants.push_back({{NopeSettings{e.heads()}}, {}, ""});
    candidates.push_back(std::move(nope));
  }
  const auto add = [&](BiasExplanation one) {
    const auto same = [&one](const BiasExplanation& other) { return AreOne(one, other); };
    if (std::any_of(found.begin(), found.end(), same)) return;
    found.push_back(std::move(one));
  };
  for (const BiasCandidate& candidate : candidates) {
    POSENC_ASSIGN_OR_RETURN(std::optional<BiasExplanation> one, search.ProveCandidate(candidate));
    if (one) add(*std::move(one));
  }
  if (asked && !found[0].fits()) {
    POSENC_ASSIGN_OR_RETURN(BiasChanges changes, ProveChanges(e, structure, *asked, found[0], call));
    if (changes.elsewhere) add(*std::move(changes.elsewhere));
    explained.changes = std::move(changes.faults);
  }
  std::stable_sort(found.begin(), found.end(), [](const BiasExplanation& a, const BiasExplanation& b) {
    return IsBetter(a.comparison, b.comparison);
  });
  return explained;
}

namespace {

// Slopes that are float32 powers of a float32 base, as in the released codes, are off by up to 8 units, and so much
// more are their products; those by a float32 logarithm of the base, by a unit a head.
double UsualUlp(const BiasEvidence& e, const std::optional<AskedBias>& asked) {
  const auto* alibi = asked ? std::get_if<AlibiSettings>(&asked->method.settings) : nullptr;
  if (alibi == nullptr || ComparedAs(e.bias.dtype) != DType::kFP32) return 2;
  return static_cast<double>(std::max<int64_t>(16, 2 * alibi->num_heads));
}

}  // namespace

absl::StatusOr<BiasDiagnosis> DiagnoseBias(const BiasEvidence& whole, const std::optional<AskedBias>& asked,
                                           size_t most, const Limits& limits, WorkPool& pool,
                                           const Cancellation& cancelled, std::optional<double> tolerance_ulp) {
  const LargeBlocksMayBeRefused scope;
  BiasEvidence e = whole;
  if (e.query_offset && (*e.query_offset < -kFarthestPosition || *e.query_offset > kFarthestPosition)) {
    return InvalidArgument("OUT_OF_RANGE", "query_offset", fmt::format("{}", *e.query_offset), "must be -2^30 .. 2^30");
  }
  const BiasCall call{.limits = limits,
                      .pool = pool,
                      .cancelled = cancelled,
                      .tolerance_ulp = tolerance_ulp.value_or(UsualUlp(e, asked)),
                      .within_is_right = tolerance_ulp.has_value(),
                      .up_to_softmax = asked && asked->up_to_softmax};
  CheckedMask mask;
  POSENC_ASSIGN_OR_RETURN(mask.found, FindMask(e, limits, cancelled));
  if (asked) POSENC_RETURN_IF_ERROR(CheckMask(e, *asked, call, &mask));
  if (!mask.shown.empty()) {
    e.shown = mask.shown.data();
    e.shown_stride = mask.batched ? e.queries() : 0;
    if (mask.found.kind != MaskKind::kNone) e.fill = mask.found.fill;
  }
  POSENC_ASSIGN_OR_RETURN(ExplainedBias explained, ExplainBias(e, asked, call));
  BiasDiagnosis& diagnosis = explained.diagnosis;
  POSENC_ASSIGN_OR_RETURN(diagnosis.verdict, JudgeBias(e, explained, asked, mask, call));
  diagnosis.structure.mask = mask.found;
  diagnosis.sentence = Describe(e, diagnosis.structure);
  if (diagnosis.verdict.sentence.empty()) diagnosis.verdict.sentence = diagnosis.sentence;
  auto& found = diagnosis.explanations;
  for (size_t n = 0; n < found.size(); ++n) found[n].same_as = found[n].comparison.share() == 1 ? 0 : n;
  diagnosis.undecided = Doubts(e, diagnosis);
  Shorten(most, &found);
  return std::move(diagnosis);
}

}  // namespace posenc::diagnose
