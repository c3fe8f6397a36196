#include "posenc/diagnose/diagnose.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/diagnose/blocks.h"
#include "posenc/diagnose/departures.h"
#include "posenc/diagnose/doubts.h"
#include "posenc/diagnose/rotation_call.h"

namespace posenc::diagnose {
namespace {

constexpr size_t kMostCompared = 4;  // candidates that are compared with all elements

class Diagnostician {
 public:
  explicit Diagnostician(const RotationCall& call) : call_(call) {}

  absl::StatusOr<Diagnosis> Run(size_t most) {
    POSENC_ASSIGN_OR_RETURN(whole_, ExplainSample(Sample(call_.evidence, Whole(call_.evidence)), call_.asked,
                                                  call_.tolerance, call_.limits, call_.pool, call_.cancelled));
    POSENC_RETURN_IF_ERROR(CheckContents());
    POSENC_RETURN_IF_ERROR(CompareBest(&whole_.explanations));
    POSENC_RETURN_IF_ERROR(Judge());
    diagnosis_.explanations = ListExplanations(call_, whole_, std::move(faults_.parts), most);
    SetMeasured();
    POSENC_ASSIGN_OR_RETURN(const int64_t not_finite, CountNotFinite(call_.evidence, call_.pool, call_.cancelled));
    const std::vector<Explanation>& all = diagnosis_.explanations;
    const std::vector<Fault>& faults = diagnosis_.verdict.faults;
    const bool named = std::any_of(faults.begin(), faults.end(), [](const Fault& fault) { return !fault.described; });
    const bool explained = (diagnosis_.verdict.kind != VerdictKind::kUnknown && (named || faults.empty())) ||
                           (!all.empty() && all[0].fits() && !IsAsMeasured(all[0]));
    const Findings findings{whole_.sample, whole_.census, whole_.readings, reading_, all, explained, not_finite};
    diagnosis_.undecided = Doubts(findings);
    return std::move(diagnosis_);
  }

 private:
  absl::Status CheckContents() {
    for (size_t n = 0; n < whole_.census.size(); ++n) {
      const std::string field = call_.evidence.is_table ? "cos" : fmt::format("{}.before", n == 0 ? "q" : "k");
      if (whole_.census[n].finite_rows == 0) {
        return InvalidArgument("OUT_OF_RANGE", field, "",
                               "must have a finite row: no row of before and after is finite");
      }
      if (whole_.census[n].all_zero) {
        return InvalidArgument("OUT_OF_RANGE", field, "",
                               "must not be all zeros, which no encoding changes: send random numbers");
      }
    }
    return absl::OkStatus();
  }

  // Compares the best, and those that the sample cannot distinguish from it, with all elements.
  absl::Status CompareBest(std::vector<Explanation>* explanations) {
    bool whole = whole_.sample.tokens.count() == call_.evidence.tokens.count();
    for (size_t n = 0; n < whole_.sample.operands.size(); ++n) {
      whole = whole && whole_.sample.operands[n].heads == call_.evidence.operands[n].heads;
    }
    const uint64_t best = explanations->empty() ? 0 : explanations->front().proof.digest;
    for (size_t n = 0; n < explanations->size(); ++n) {
      Explanation& explanation = (*explanations)[n];
      if (whole) {
        explanation.complete = true;
        continue;
      }
      const bool asked = explanation.candidate.departures.empty();
      if (!asked && n >= kMostCompared && (explanation.proof.digest != best || n >= 2 * kMostCompared)) continue;
      POSENC_RETURN_IF_ERROR(call_.CompareWithAll(&explanation));
    }
    Rank(explanations);
    return absl::OkStatus();
  }

  // The asked candidate, computed as asked for; absent if nothing was asked for.
  absl::StatusOr<std::optional<Explanation>> Reference() {
    const auto found = std::find_if(whole_.explanations.begin(), whole_.explanations.end(),
                                    [](const Explanation& e) { return e.complete && e.candidate.departures.empty(); });
    if (!call_.asked.settings || found == whole_.explanations.end()) return std::nullopt;
    if (!call_.asked.precision) return InAnyPrecision(*found);
    if (PrecisionDepartures(call_.asked, *found, call_.NarrowestAfter()).empty()) return *found;
    POSENC_ASSIGN_OR_RETURN(std::optional<Explanation> precise, ProveAsked(found->candidate, whole_.sample, call_.asked,
                                                                           call_.limits, call_.pool, call_.cancelled));
    if (!precise) return std::nullopt;
    POSENC_RETURN_IF_ERROR(call_.CompareWithAll(&*precise));
    if (!precise->complete) return std::nullopt;  // its misfits are of the sample's rows
    return precise;
  }

  // The explanation; in the nearest precision in which it fits if that comes about as near.
  absl::StatusOr<Explanation> InAnyPrecision(const Explanation& nearest) const {
    constexpr double kAsNear = 1.25;
    if (nearest.fits()) return nearest;
    Explanation best = nearest;
    double least = kAsNear * nearest.proof.comparison.mean_log();
    for (const Variant& variant : Variants(call_.evidence, call_.asked)) {
      const auto prove = [&](const Evidence& evidence) {
        return Prove(nearest.candidate, variant, evidence, call_.limits, call_.pool, call_.cancelled, &call_.tolerance);
      };
      auto proof = prove(whole_.sample);
      if (proof.ok() && proof->misfits->none()) proof = prove(call_.evidence);
      POSENC_RETURN_IF_ERROR(call_.cancelled());
      if (!proof.ok() || !proof->misfits->none() || proof->comparison.mean_log() > least) continue;
      best.variant = variant;
      best.proof = *std::move(proof);
      least = best.proof.comparison.mean_log();
    }
    return best;
  }

  absl::Status Judge() {
    Verdict& verdict = diagnosis_.verdict;
    verdict.tolerance = call_.tolerance;
    verdict.bound = Describe(call_.tolerance, call_.NarrowestAfter());
    POSENC_ASSIGN_OR_RETURN(reference_, Reference());
    if (!call_.asked.unrotated.empty()) return JudgeUnrotated();
    if (!call_.asked.settings) {
      JudgeUnasked();
      return absl::OkStatus();
    }
    if (!reference_ || !reference_->fits()) {
      POSENC_ASSIGN_OR_RETURN(faults_, FindFaults(call_, whole_, reference_ ? &*reference_ : nullptr));
    } else if (reference_->proof.comparison.share() < 1 && !call_.asked.tolerance_ulp) {
      POSENC_ASSIGN_OR_RETURN(faults_, FindNearerFault(call_, whole_, *reference_));
    }
    verdict.faults = std::move(faults_.faults);
    if (reference_) {
      const Misfits& misfits = *reference_->proof.misfits;
      AddRows(Without(misfits.undefined, misfits.rows), &faults_.undefined);
    }
    AddUndefined(faults_.undefined);
    if (!verdict.faults.empty()) {
      Conclude(call_.evidence, true, &verdict);
      return absl::OkStatus();
    }
    const Comparison& comparison = reference_->proof.comparison;
    if (const int64_t flips = reference_->proof.misfits->flips; flips > 0) {
      verdict.bound += fmt::format(", and one rounding of a table's entry more in {} of them", flips);
    }
    verdict.kind = VerdictKind::kMatches;
    verdict.sentence = comparison.share() == 1
                           ? fmt::format("all {} elements are equal, bit for bit", comparison.elements())
                           : fmt::format("{} of {} elements are equal, all within {}; worst {} ulp", comparison.equal(),
                                         comparison.elements(), verdict.bound, comparison.worst());
    return absl::OkStatus();
  }

  // Adds the part in which after has numbers, but nobody knows which, if there is one.
  void AddUndefined(const RowSet& rows) {
    if (IsEmpty(rows)) return;
    Fault fault{.sentence = "after has numbers where NaN is expected"};
    fault.parts = PartsOf(call_.evidence, rows, rows);
    diagnosis_.verdict.faults.push_back(std::move(fault));
  }

  // Nothing should rotate.
  absl::Status JudgeUnrotated() {
    Verdict& verdict = diagnosis_.verdict;
    verdict.bound = "no change of any bit";
    POSENC_ASSIGN_OR_RETURN(const RowSet changed, ChangedRows(call_.evidence, call_.pool, call_.cancelled));
    if (IsEmpty(changed)) {
      verdict.kind = VerdictKind::kMatches;
      verdict.sentence = fmt::format("nothing rotates in {}, and nothing is changed", call_.asked.unrotated);
      return absl::OkStatus();
    }
    const bool found = !whole_.explanations.empty() && whole_.explanations[0].fits();
    const std::string what = found ? Sentence(call_.asked, whole_.explanations[0]) : Measurement(whole_);
    Fault fault{.departures = {{"ROTATED", fmt::format("nothing rotates in {}, but rows are changed: {}",
                                                       call_.asked.unrotated, what)}}};
    fault.sentence = fault.departures[0].message;
    fault.parts = PartsOf(call_.evidence, changed, changed);
    verdict.faults.push_back(std::move(fault));
    Conclude(call_.evidence, true, &verdict);
    return absl::OkStatus();
  }

  void JudgeUnasked() {
    Verdict& verdict = diagnosis_.verdict;
    if (!whole_.explanations.empty()) {
      const Explanation& best = whole_.explanations[0];
      if (best.fits() && best.complete && !IsAsMeasured(best)) {
        AddUndefined(best.proof.misfits->undefined);
        if (!verdict.faults.empty()) return Conclude(call_.evidence, false, &verdict);
        verdict.kind = VerdictKind::kMatches;
        verdict.sentence = Sentence(call_.asked, best);
        return;
      }
    }
    verdict.sentence = Measurement(whole_);
  }

  void SetMeasured() {
    const std::vector<Reading>& readings = whole_.readings;
    if (readings.empty()) return;
    reading_ = readings.data();
    const auto& explanations = diagnosis_.explanations;
    for (const Reading& other : readings) {
      if (explanations.empty()) break;
      const RotarySettings& settings = explanations[0].candidate.settings;
      if (other.layouts[0].input == *settings.input_pairing && other.layouts[0].output == *settings.output_pairing &&
          other.layouts[0].half_split_parts == settings.half_split_parts &&
          other.layouts[0].rotary_dim == *settings.rotary_dim) {
        reading_ = &other;
        break;
      }
    }
    diagnosis_.measured = Measured{reading_->layouts[0], reading_->norm_residual, reading_->angles.scatter,
                                   reading_->angles.attention_scaling, reading_->frequencies.pairs};
  }

  const RotationCall& call_;
  SampleFindings whole_;
  std::optional<Explanation> reference_;
  FoundFaults faults_;
  const Reading* reading_ = nullptr;  // reading of the first explanation
  Diagnosis diagnosis_;
};

}  // namespace

DType RotationCall::NarrowestAfter() const {
  DType narrowest = evidence.operands[0].after_dtype;
  for (const Rows& rows : evidence.operands) {
    if (RoundingOf(rows.after_dtype) > RoundingOf(narrowest)) narrowest = rows.after_dtype;
  }
  return narrowest;
}

absl::Status RotationCall::CompareWithAll(Explanation* explanation) const {
  auto proof = Prove(explanation->candidate, explanation->variant, evidence, limits, pool, cancelled, &tolerance);
  if (!proof.ok()) return cancelled();
  explanation->proof = *std::move(proof);
  explanation->complete = true;
  return absl::OkStatus();
}

std::vector<Departure> RotationCall::AllDepartures(const Explanation& explanation) const {
  std::vector<Departure> departures = explanation.candidate.departures;
  for (Departure& departure : PrecisionDepartures(asked, explanation, NarrowestAfter())) {
    departures.push_back(std::move(departure));
  }
  return departures;
}

absl::StatusOr<Diagnosis> Diagnose(const Evidence& evidence, const Asked& asked, size_t most_explanations,
                                   const Limits& limits, WorkPool& pool, const Cancellation& cancelled) {
  const LargeBlocksMayBeRefused scope;
  const RotationCall call{evidence, asked, asked.tolerance(), limits, pool, cancelled};
  return Diagnostician(call).Run(most_explanations);
}

}  // namespace posenc::diagnose
