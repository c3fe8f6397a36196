#include "posenc/diagnose/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/status.h"
#include "posenc/diagnose/departures.h"
#include "posenc/diagnose/doubts.h"
#include "posenc/diagnose/search.h"

namespace posenc::diagnose {
namespace {

constexpr size_t kComplete = 4;  // candidates that are compared with all elements

// Ranks explanations: 0 if all bits are equal. Near position 0 a recurrence gives the same as frequencies that are one
// ULP off, as other systems' are. Therefore it must explain more than one element in a thousand.
double Distance(const Explanation& explanation) {
  const double distance = explanation.proof.comparison.mean_log();
  return explanation.candidate.fault == TableFault::kRecurrence ? std::max(distance, 1e-3) : distance;
}

class Diagnostician {
 public:
  Diagnostician(const Evidence& evidence, const Asked& asked, const Limits& limits, WorkPool& pool,
                const Cancellation& cancelled)
      : evidence_(evidence),
        sample_(Sample(evidence)),
        asked_(asked),
        limits_(limits),
        pool_(pool),
        cancelled_(cancelled) {}

  absl::StatusOr<Diagnosis> Run(size_t most) {
    for (const Rows& rows : sample_.operands) {
      numbers_.emplace_back(rows);
      census_.push_back(Census(numbers_.back()));
    }
    POSENC_RETURN_IF_ERROR(CheckContents());
    if (Changed()) readings_ = ReadPairs(sample_, numbers_, census_, asked_);
    if (!readings_.empty() && readings_[0].norm_residual > RoundingResidual()) {
      auto scaled = ReadScaledPairs(sample_, numbers_, census_, asked_);
      const bool better = !scaled.empty() && scaled[0].norm_residual < readings_[0].norm_residual / 10;
      if (better) readings_ = std::move(scaled);
    }
    if (!readings_.empty() && readings_[0].norm_residual <= kNotARotation) {
      scored_ = FindCandidates(sample_, readings_, asked_, limits_, cancelled_);
      POSENC_RETURN_IF_ERROR(cancelled_());
    }
    for (const Scored& scored : scored_) {
      POSENC_RETURN_IF_ERROR(ProveOnSample(scored.candidate, scored.residual));
    }
    if (const auto candidate = AskedCandidate(asked_)) POSENC_RETURN_IF_ERROR(ProveOnSample(*candidate));
    for (const Candidate& candidate : TableCandidates(sample_, readings_, asked_)) {
      POSENC_RETURN_IF_ERROR(ProveOnSample(candidate));
    }
    POSENC_RETURN_IF_ERROR(TryFaults());
    Rank();
    POSENC_RETURN_IF_ERROR(ProveOnAll());
    Explain(most);
    const bool explained = !explanations().empty() && Explains(explanations()[0]);
    const Findings findings{sample_, census_, readings_, reading_, explanations(), explained};
    diagnosis_.undecided = Doubts(findings, limits_);
    return std::move(diagnosis_);
  }

 private:
  std::vector<Explanation>& explanations() { return diagnosis_.explanations; }
  bool Changed() const {
    return std::any_of(census_.begin(), census_.end(), [](const auto& c) { return c.first_changed >= 0; });
  }

  // If false, no candidate can be what was applied.
  bool IsRotation() const {
    return !readings_.empty() && std::max(readings_[0].norm_residual, readings_[0].angles.scatter) <= kNotARotation;
  }
  // True if the angles fit, however the elements were rounded, or if half of the elements are equal, as with rounded
  // positions or angles.
  static bool Explains(const Explanation& explanation) {
    return explanation.residual <= kNotARotation || explanation.proof.comparison.share() >= 0.5;
  }

  // A larger norm residual is not due to rounding, because a rotation keeps norms.
  double RoundingResidual() const {
    const double rounding = RoundingOf(sample_);
    return std::min(64 * rounding * rounding, kNotARotation);
  }

  // The `after` type with the coarsest rounding.
  DType NarrowestAfter() const {
    DType narrowest = sample_.operands[0].after_dtype;
    for (const Rows& rows : sample_.operands) {
      if (RoundingOf(rows.after_dtype) > RoundingOf(narrowest)) narrowest = rows.after_dtype;
    }
    return narrowest;
  }

  absl::Status CheckContents() {
    for (size_t n = 0; n < census_.size(); ++n) {
      const std::string field = evidence_.is_table ? "cos" : fmt::format("{}.before", n == 0 ? "q" : "k");
      if (census_[n].finite_rows == 0) {
        return InvalidArgument("OUT_OF_RANGE", field, "",
                               "must have a finite row: no row of before and after is finite");
      }
      if (census_[n].all_zero) {
        return InvalidArgument("OUT_OF_RANGE", field, "",
                               "must not be all zeros, which no encoding changes: send random numbers");
      }
    }
    return absl::OkStatus();
  }

  std::vector<Variant> Variants() const {
    std::vector<Precision> precisions = {kExactPrecision, kF32Precision, kHfEagerPrecision, kVllmPrecision,
                                         kFluxPrecision};
    if (evidence_.is_table) {  // rounded once, to the table's own type
      precisions.push_back({Frequencies::kExact, TableDtype::kTensor, Rounding::kOnce});
      precisions.push_back({Frequencies::kFloat64, TableDtype::kTensor, Rounding::kOnce});
    }
    if (asked_.precision) precisions.insert(precisions.begin(), *asked_.precision);
    std::vector<Variant> variants;
    for (const std::vector<DType>& compute : ComputeTypes(sample_)) {
      for (const Precision& precision : precisions) variants.push_back({precision, compute});
    }
    return variants;
  }

  // Adds the variant nearest to the data as an explanation.
  absl::Status ProveOnSample(const Candidate& candidate, double residual = 1) {
    std::optional<Explanation> best;
    for (const Variant& variant : Variants()) {
      auto proof = Prove(candidate, variant, sample_, limits_, pool_, cancelled_);
      if (!proof.ok()) {
        POSENC_RETURN_IF_ERROR(cancelled_());
        continue;
      }
      if (best && proof->digest == best->proof.digest) {
        if (variant.compute == best->variant.compute) best->same_precisions.push_back(variant.precision);
        continue;
      }
      if (best && proof->comparison.mean_log() >= best->proof.comparison.mean_log()) continue;
      best = Explanation{.candidate = candidate, .variant = variant, .proof = *std::move(proof), .residual = residual};
    }
    if (best) explanations().push_back(*std::move(best));
    return absl::OkStatus();
  }

  // Tries known table faults of frameworks if no explanation is fully equal.
  absl::Status TryFaults() {
    Rank();
    if (!IsRotation() || explanations().empty() || explanations()[0].proof.comparison.share() == 1)
      return absl::OkStatus();
    std::vector<Candidate> bases;
    for (size_t n = 0; n < std::min<size_t>(2, explanations().size()); ++n)
      bases.push_back(explanations()[n].candidate);
    std::optional<Candidate> straight = AskedCandidate(asked_);  // rounded positions may have matched other settings
    if (!scored_.empty() && straight) {
      const Reading& reading = readings_[scored_[0].reading];
      if (*straight->settings.rotary_dim == reading.layouts[0].rotary_dim) {
        SetLayout(reading, &*straight);
        straight->departures = LayoutDepartures(asked_, reading, sample_);
        bases.push_back(*std::move(straight));
      }
    }
    for (const Candidate& base : bases) {
      if (base.fault != TableFault::kNone) continue;
      for (TableFault fault : {TableFault::kTableBF16, TableFault::kTableFP16, TableFault::kAnglesBF16,
                               TableFault::kPositionsBF16, TableFault::kPositionsFP16, TableFault::kRecurrence}) {
        Candidate candidate = base;
        candidate.fault = fault;
        candidate.departures.push_back(FaultDeparture(fault));
        POSENC_RETURN_IF_ERROR(ProveOnSample(candidate));
      }
    }
    return absl::OkStatus();
  }

  // Sorts explanations: those compared with all elements first, then nearest first, then fewest departures. The sort is
  // stable, so ties stay in order.
  void Rank() {
    std::stable_sort(explanations().begin(), explanations().end(), [](const Explanation& a, const Explanation& b) {
      if (a.complete != b.complete) return a.complete;
      const double left = Distance(a), right = Distance(b);
      if (left != right) return left < right;
      return a.candidate.departures.size() < b.candidate.departures.size();
    });
  }

  // Compares the best, and those that the sample cannot distinguish from it, with all elements.
  absl::Status ProveOnAll() {
    bool whole = sample_.tokens.count() == evidence_.tokens.count();
    for (size_t n = 0; n < sample_.operands.size(); ++n) {
      whole = whole && sample_.operands[n].heads == evidence_.operands[n].heads;
    }
    const uint64_t best = explanations().empty() ? 0 : explanations()[0].proof.digest;
    for (size_t n = 0; n < explanations().size(); ++n) {
      Explanation& explanation = explanations()[n];
      if (whole) {
        explanation.complete = true;
        continue;
      }
      if (n >= kComplete && (explanation.proof.digest != best || n >= 2 * kComplete)) break;
      auto proof = Prove(explanation.candidate, explanation.variant, evidence_, limits_, pool_, cancelled_);
      if (!proof.ok()) {  // a candidate may be computable for the sample only
        POSENC_RETURN_IF_ERROR(cancelled_());
        continue;
      }
      explanation.proof = *std::move(proof);
      explanation.complete = true;
    }
    Rank();
    return absl::OkStatus();
  }

  void Explain(size_t most) {
    std::vector<Explanation> kept;
    for (Explanation& explanation : explanations()) {
      const bool again = std::any_of(kept.begin(), kept.end(), [&](const Explanation& other) {
        // A fault that changes no byte here is not reported.
        const bool nothing_new =
            explanation.candidate.fault != TableFault::kNone || other.sentence == Sentence(asked_, explanation);
        return nothing_new && other.proof.digest == explanation.proof.digest;
      });
      if (again || kept.size() == most) continue;
      auto& departures = explanation.candidate.departures;
      const bool explains = Explains(explanation);
      // Keep what was asked for, to report how far off it is.
      if (!explains && !departures.empty()) continue;
      if (explains) {
        const auto precision = PrecisionDepartures(asked_, explanation, NarrowestAfter());
        departures.insert(departures.end(), precision.begin(), precision.end());
      }
      explanation.sentence = explains ? Sentence(asked_, explanation) : asked_.Asks() + " does not explain the data";
      explanation.same_as = kept.size();
      for (size_t n = 0; n < kept.size(); ++n) {
        const bool comparable = kept[n].complete == explanation.complete;
        if (comparable && kept[n].proof.digest == explanation.proof.digest) {
          explanation.same_as = n;
          break;
        }
      }
      kept.push_back(std::move(explanation));
    }
    explanations() = std::move(kept);
    if (readings_.empty()) return;
    reading_ = &readings_[0];
    for (const Reading& other : readings_) {
      if (!explanations().empty() && other.layouts[0].input == *explanations()[0].candidate.settings.input_pairing &&
          other.layouts[0].output == *explanations()[0].candidate.settings.output_pairing &&
          other.layouts[0].half_split_parts == explanations()[0].candidate.settings.half_split_parts &&
          other.layouts[0].rotary_dim == *explanations()[0].candidate.settings.rotary_dim) {
        reading_ = &other;
        break;
      }
    }
    diagnosis_.measured = Measured{reading_->layouts[0], reading_->norm_residual, reading_->angles.scatter,
                                   reading_->angles.attention_scaling, reading_->frequencies.pairs};
  }

  const Evidence& evidence_;
  const Evidence sample_;
  const Asked& asked_;
  const Limits& limits_;
  WorkPool& pool_;
  const Cancellation& cancelled_;
  std::vector<Numbers> numbers_;
  std::vector<ElementCensus> census_;
  std::vector<Reading> readings_;
  std::vector<Scored> scored_;
  const Reading* reading_ = nullptr;  // reading of the first explanation
  Diagnosis diagnosis_;
};

}  // namespace

absl::StatusOr<Diagnosis> Diagnose(const Evidence& evidence, const Asked& asked, size_t most_explanations,
                                   const Limits& limits, WorkPool& pool, const Cancellation& cancelled) {
  return Diagnostician(evidence, asked, limits, pool, cancelled).Run(most_explanations);
}

}  // namespace posenc::diagnose
