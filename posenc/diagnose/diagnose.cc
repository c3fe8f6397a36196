#include "posenc/diagnose/diagnose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/status.h"
#include "posenc/diagnose/departures.h"
#include "posenc/diagnose/doubts.h"
#include "posenc/diagnose/explain_sample.h"
#include "posenc/diagnose/parts.h"
#include "posenc/diagnose/verdict.h"

namespace posenc::diagnose {
namespace {

constexpr size_t kComplete = 4;  // candidates that are compared with all elements
constexpr size_t kMostFaults = 4;
constexpr int64_t kFewRows = 16;  // too few to measure anything

class Diagnostician {
 public:
  Diagnostician(const Evidence& evidence, const Asked& asked, const Limits& limits, WorkPool& pool,
                const Cancellation& cancelled)
      : evidence_(evidence),
        asked_(asked),
        tolerance_(asked.tolerance()),
        limits_(limits),
        pool_(pool),
        cancelled_(cancelled) {}

  absl::StatusOr<Diagnosis> Run(size_t most) {
    POSENC_ASSIGN_OR_RETURN(
        whole_, ExplainSample(Sample(evidence_, Whole(evidence_)), asked_, tolerance_, limits_, pool_, cancelled_));
    POSENC_RETURN_IF_ERROR(CheckContents());
    POSENC_RETURN_IF_ERROR(CompareWithAll(&whole_.explanations));
    POSENC_RETURN_IF_ERROR(Judge());
    Explain(most);
    const Verdict& verdict = diagnosis_.verdict;
    const Findings findings{whole_.sample, whole_.census,           whole_.readings,
                            reading_,      diagnosis_.explanations, verdict.kind != VerdictKind::kUnknown};
    diagnosis_.undecided = Doubts(findings, limits_);
    return std::move(diagnosis_);
  }

 private:
  absl::Status CheckContents() {
    for (size_t n = 0; n < whole_.census.size(); ++n) {
      const std::string field = evidence_.is_table ? "cos" : fmt::format("{}.before", n == 0 ? "q" : "k");
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

  // The `after` type with the coarsest rounding.
  DType NarrowestAfter() const {
    DType narrowest = evidence_.operands[0].after_dtype;
    for (const Rows& rows : evidence_.operands) {
      if (RoundingOf(rows.after_dtype) > RoundingOf(narrowest)) narrowest = rows.after_dtype;
    }
    return narrowest;
  }

  // Compares the best, and those that the sample cannot distinguish from it, with all elements.
  absl::Status CompareWithAll(std::vector<Explanation>* explanations) {
    bool whole = whole_.sample.tokens.count() == evidence_.tokens.count();
    for (size_t n = 0; n < whole_.sample.operands.size(); ++n) {
      whole = whole && whole_.sample.operands[n].heads == evidence_.operands[n].heads;
    }
    const uint64_t best = explanations->empty() ? 0 : explanations->front().proof.digest;
    for (size_t n = 0; n < explanations->size(); ++n) {
      Explanation& explanation = (*explanations)[n];
      if (whole) {
        explanation.complete = true;
        continue;
      }
      const bool asked = explanation.candidate.departures.empty();
      if (!asked && n >= kComplete && (explanation.proof.digest != best || n >= 2 * kComplete)) continue;
      POSENC_RETURN_IF_ERROR(CompareWithAll(&explanation));
    }
    Rank(explanations);
    return absl::OkStatus();
  }

  // Leaves the explanation incomplete if it can be computed for the sample only.
  absl::Status CompareWithAll(Explanation* explanation) {
    auto proof =
        Prove(explanation->candidate, explanation->variant, evidence_, limits_, pool_, cancelled_, &tolerance_);
    if (!proof.ok()) return cancelled_();
    explanation->proof = *std::move(proof);
    explanation->complete = true;
    return absl::OkStatus();
  }

  // The asked candidate, computed as asked for; absent if nothing was asked for.
  absl::StatusOr<std::optional<Explanation>> Reference() {
    const auto found = std::find_if(whole_.explanations.begin(), whole_.explanations.end(),
                                    [](const Explanation& e) { return e.complete && e.candidate.departures.empty(); });
    if (!asked_.settings || found == whole_.explanations.end()) return std::nullopt;
    if (!asked_.precision) return InAnyPrecision(*found);
    if (PrecisionDepartures(asked_, *found, NarrowestAfter()).empty()) return *found;
    POSENC_ASSIGN_OR_RETURN(std::optional<Explanation> precise,
                            ProveAsked(found->candidate, whole_.sample, asked_, limits_, pool_, cancelled_));
    if (!precise) return std::nullopt;
    POSENC_RETURN_IF_ERROR(CompareWithAll(&*precise));
    return precise;
  }

  // The explanation, in another precision if it fits only in that.
  absl::StatusOr<Explanation> InAnyPrecision(const Explanation& nearest) const {
    if (nearest.fits()) return nearest;
    for (const Variant& variant : Variants(evidence_, asked_)) {
      auto proof = Prove(nearest.candidate, variant, evidence_, limits_, pool_, cancelled_, &tolerance_);
      POSENC_RETURN_IF_ERROR(cancelled_());
      if (!proof.ok() || !proof->misfits->none()) continue;
      Explanation other = nearest;
      other.variant = variant;
      other.proof = *std::move(proof);
      return other;
    }
    return nearest;
  }

  // True if a fault without fitted numbers comes so much nearer than the reference, which fits, that it is no accident.
  bool IsMuchNearer(const Explanation& fault) const {
    constexpr double kRatio = 0.25;
    constexpr uint64_t kLeast = 32;  // elements that are not as expected
    const Comparison& expected = reference_->proof.comparison;
    return fault.fits() && fault.candidate.free_values == 0 && fault.candidate.departures.size() == 1 &&
           expected.elements() - expected.equal() >= kLeast &&
           fault.proof.comparison.mean_log() < kRatio * expected.mean_log();
  }

  // Departures of the candidate and of its precision.
  std::vector<Departure> AllDepartures(const Explanation& explanation) const {
    std::vector<Departure> departures = explanation.candidate.departures;
    for (Departure& departure : PrecisionDepartures(asked_, explanation, NarrowestAfter())) {
      departures.push_back(std::move(departure));
    }
    return departures;
  }

  absl::Status Judge() {
    Verdict& verdict = diagnosis_.verdict;
    verdict.tolerance = tolerance_;
    verdict.bound = Describe(tolerance_, NarrowestAfter());
    POSENC_ASSIGN_OR_RETURN(reference_, Reference());
    if (!asked_.settings) {
      JudgeUnasked();
      return absl::OkStatus();
    }
    if (reference_ && reference_->proof.comparison.share() == 1) {
      verdict.kind = VerdictKind::kMatches;
      verdict.sentence = fmt::format("all {} elements are equal, bit for bit", reference_->proof.comparison.elements());
      return absl::OkStatus();
    }
    if (reference_ && reference_->fits()) {
      // A fault that gives every bit is proven, although what was asked for is within the tolerance.
      const auto proven = std::find_if(whole_.explanations.begin(), whole_.explanations.end(), [&](const auto& e) {
        return e.complete && !IsAsMeasured(e) && !AllDepartures(e).empty() &&
               (e.proof.comparison.share() == 1 || IsMuchNearer(e));
      });
      if (proven == whole_.explanations.end() || asked_.tolerance_ulp) {
        const Comparison& comparison = reference_->proof.comparison;
        verdict.kind = VerdictKind::kMatches;
        verdict.sentence = fmt::format("{} of {} elements are equal, all within {}; worst {} ulp", comparison.equal(),
                                       comparison.elements(), verdict.bound, comparison.worst());
        return absl::OkStatus();
      }
      AddFault(*proven, whole_.explanations, EveryRow());
      Conclude(evidence_, true, &verdict);
      return absl::OkStatus();
    }
    return FindFaults();
  }

  void JudgeUnasked() {
    Verdict& verdict = diagnosis_.verdict;
    if (!whole_.explanations.empty()) {
      const Explanation& best = whole_.explanations[0];
      if (best.fits() && best.complete && !IsAsMeasured(best)) {
        verdict.kind = VerdictKind::kMatches;
        verdict.sentence = Sentence(asked_, best);
        return;
      }
    }
    verdict.sentence = Measurement(whole_);
  }

  RowSet EveryRow() const {
    RowSet rows;
    for (const Rows& operand : evidence_.operands) rows.emplace_back(operand.tokens() * operand.heads, 1);
    return rows;
  }
  // Rows in which the reference is not within the tolerance; all if there is no reference.
  RowSet MisfitRows() const { return reference_ ? reference_->proof.misfits->rows : EveryRow(); }

  // Describes the measurements of a part that no explanation fits.
  static std::string Measurement(const SampleFindings& findings) {
    if (!findings.changed()) return "the rows are unchanged";
    if (findings.readings.empty() || findings.readings[0].norm_residual > kNotARotation) {
      return "no pairing keeps the norms of pairs";
    }
    if (findings.readings[0].angles.scatter > kNotARotation) return "heads of one token rotate by different angles";
    const bool regular =
        std::any_of(findings.explanations.begin(), findings.explanations.end(),
                    [](const Explanation& e) { return IsAsMeasured(e) && e.residual <= kWellMatched; });
    return regular ? "pairs rotate by frequencies that match no known settings; they are measured"
                   : "pairs rotate by angles that no known settings give at these positions";
  }

  void AddFault(const Explanation& explanation, const std::vector<Explanation>& others, const RowSet& rows) {
    Fault fault{.departures = AllDepartures(explanation), .free_values = explanation.candidate.free_values};
    fault.sentence = Sentence(fault.departures);
    constexpr size_t kMostAlternatives = 3;
    for (const Explanation& other : others) {
      if (&other == &explanation || other.sample_digest != explanation.sample_digest || IsAsMeasured(other)) continue;
      if (other.complete && explanation.complete && other.proof.digest != explanation.proof.digest) continue;
      const std::vector<Departure>& departures = other.candidate.departures;
      if (departures.empty() || departures.size() > explanation.candidate.departures.size()) continue;
      const auto same = [text = Sentence(departures)](const auto& known) { return Sentence(known) == text; };
      if (same(fault.departures) || std::any_of(fault.alternatives.begin(), fault.alternatives.end(), same)) continue;
      if (fault.alternatives.size() < kMostAlternatives) fault.alternatives.push_back(departures);
    }
    const RowSet fitting = Complement(explanation.proof.misfits->rows);
    fault.parts = PartsOf(evidence_, rows, fitting);
    SetPairs(&fault, rows);
    diagnosis_.verdict.faults.push_back(std::move(fault));
  }

  // Sets the pairs in which the reference is wrong in these rows, and counts the values that differ.
  void SetPairs(Fault* fault, const RowSet& rows) const {
    if (!reference_) return;
    const auto proof =
        Prove(reference_->candidate, reference_->variant, evidence_, limits_, pool_, cancelled_, &tolerance_, &rows);
    if (!proof.ok()) return;
    const RotarySettings& settings = reference_->candidate.settings;
    const int64_t width = *settings.rotary_dim;
    const bool partly = !IsOfAllPairs(fault->departures);
    for (Part& part : fault->parts) {
      std::vector<uint8_t> wrong(width / 2);
      for (size_t n = 0; n < evidence_.operands.size(); ++n) {
        if (!part.operands.empty() && part.operands[0] != evidence_.operands[n].which) continue;
        const std::vector<uint8_t>& elements = proof->misfits->within_row[n];
        const PairLayout layout{*settings.input_pairing, *settings.output_pairing, width,
                                reference_->candidate.offsets[n], settings.half_split_parts};
        for (int64_t k = 0; k < width / 2; ++k) {
          wrong[k] |= elements[layout.First(layout.output, k)] | elements[layout.Second(layout.output, k)];
        }
      }
      int64_t tokens = 0;
      for (size_t n = 0; n < evidence_.operands.size(); ++n) {
        const int64_t heads = evidence_.operands[n].heads;
        int64_t here = 0;
        for (int64_t token = 0; token < evidence_.operands[n].tokens(); ++token) {
          const auto row = proof->misfits->rows[n].begin() + token * heads;
          here += std::find(row, row + heads, 1) != row + heads;
        }
        tokens = std::max(tokens, here);
      }
      fault->values = std::max(fault->values, tokens * std::count(wrong.begin(), wrong.end(), 1));
      if (partly) part.pairs = Ranges(wrong);
    }
  }

  // True for departures that change every pair that turns.
  static bool IsOfAllPairs(const std::vector<Departure>& departures) {
    static constexpr std::string_view kCodes[] = {
        "PAIRING",        "ROTARY_OFFSET",     "DIRECTION",        "POSITIONS",         "NOT_ROTATED",
        "ROTATED_TWICE",  "COS_SIN_EXCHANGED", "ATTENTION_FACTOR", "POSITIONS_ROUNDED", "ROUNDING",
        "TABLES_ROUNDED", "ANGLES_ROUNDED",    "ROTARY_WIDTH"};
    return std::any_of(departures.begin(), departures.end(), [](const Departure& departure) {
      return std::find(std::begin(kCodes), std::end(kCodes), departure.code) != std::end(kCodes);
    });
  }

  // Explains the rows in which the reference is wrong, part by part.
  absl::Status FindFaults() {
    RowSet rest = MisfitRows();
    std::string measured;
    for (size_t n = 0; n < kMostFaults && !IsEmpty(rest); ++n) {
      POSENC_ASSIGN_OR_RETURN(const bool found, FindFault(&rest, &measured));
      if (!found) break;
    }
    Verdict& verdict = diagnosis_.verdict;
    if (!IsEmpty(rest)) {
      Fault fault{.sentence = reference_ && CountOf(rest) <= kFewRows ? Difference() : measured};
      fault.parts = PartsOf(evidence_, rest, RowSet(rest));
      SetPairs(&fault, rest);
      verdict.faults.push_back(std::move(fault));
    }
    Conclude(evidence_, true, &verdict);
    return absl::OkStatus();
  }

  std::string Difference() const {
    const Proof& proof = reference_->proof;
    return fmt::format("{} of {} elements differ by more than {}", proof.misfits->elements, proof.comparison.elements(),
                       diagnosis_.verdict.bound);
  }

  // Explains as many of the rows as one explanation can, and removes them. Returns false if none explains a part.
  absl::StatusOr<bool> FindFault(RowSet* rest, std::string* measured) {
    if (UseBest(whole_.explanations, true, rest)) return true;
    bool first = true;
    std::vector<Explanation> all;
    for (const Box& box : BoxesOf(evidence_, *rest)) {
      if (IsWhole(box) && first) {  // explained before
        *measured = Measurement(whole_);
        first = false;
        continue;
      }
      const Asked asked = asked_.Of(box.operands);
      POSENC_ASSIGN_OR_RETURN(SampleFindings findings,
                              ExplainSample(Sample(evidence_, box), asked, tolerance_, limits_, pool_, cancelled_));
      if (first) *measured = Measurement(findings);
      first = false;
      std::vector<Explanation> candidates;
      for (Explanation& one : findings.explanations) {
        if (!one.fits() || IsAsMeasured(one) || one.candidate.departures.empty()) continue;
        if (candidates.size() >= kComplete && one.sample_digest != candidates[0].sample_digest) continue;
        Extend(box, &one);
        POSENC_RETURN_IF_ERROR(CompareWithAll(&one));
        if (one.complete) candidates.push_back(std::move(one));
      }
      if (UseBest(candidates, true, rest)) return true;
      std::move(candidates.begin(), candidates.end(), std::back_inserter(all));
    }
    return UseBest(all, false, rest) || UseBest(whole_.explanations, false, rest);
  }

  // Adds the fault of the explanation that explains the most of the rows, the first of equals, and removes its rows.
  // `whole_heads`: it must explain a head of a batch row entirely; else runs of tokens.
  bool UseBest(const std::vector<Explanation>& explanations, bool whole_heads, RowSet* rest) {
    const Explanation* best = nullptr;
    int64_t most = 0;
    RowSet rows;
    for (const Explanation& one : explanations) {
      if (!one.complete || !one.proof.misfits || IsAsMeasured(one) || AllDepartures(one).empty()) continue;
      RowSet explained = ExplainedRows(evidence_, *rest, one.proof.misfits->rows, whole_heads);
      const int64_t count = CountOf(explained);
      if (count > most) best = &one, most = count, rows = std::move(explained);
    }
    if (best == nullptr) return false;
    AddFault(*best, explanations, rows);
    Fault& fault = diagnosis_.verdict.faults.back();
    if (fault.values < 2 * fault.free_values) {  // it would explain itself
      diagnosis_.verdict.faults.pop_back();
      return false;
    }
    *rest = Without(*rest, rows);
    if (!best->fits()) parts_.push_back(*best);
    return true;
  }

  bool IsWhole(const Box& box) const {
    if (box.operands.size() != evidence_.operands.size()) return false;
    for (size_t n = 0; n < box.operands.size(); ++n) {
      if (static_cast<int64_t>(box.heads[n].size()) != evidence_.operands[n].heads) return false;
    }
    return static_cast<int64_t>(box.tokens.size()) == evidence_.tokens.count();
  }

  // Makes an explanation of some operands one of all; the others are as asked for.
  void Extend(const Box& box, Explanation* explanation) const {
    Candidate& candidate = explanation->candidate;
    std::vector<int64_t> offsets = asked_.offsets;
    offsets.resize(evidence_.operands.size());
    std::array<ScaledAs, 2> scaled_as = {};
    std::vector<DType> compute;
    for (const Rows& rows : evidence_.operands) compute.push_back(rows.before_dtype);
    for (size_t n = 0; n < box.operands.size(); ++n) {
      offsets[box.operands[n]] = candidate.offsets[n];
      scaled_as[box.operands[n]] = candidate.scaled_as[n];
      compute[box.operands[n]] = explanation->variant.compute[n];
    }
    candidate.offsets = std::move(offsets);
    candidate.scaled_as = scaled_as;
    explanation->variant.compute = std::move(compute);
  }

  void Explain(size_t most) {
    auto& explanations = diagnosis_.explanations;
    const auto add = [&](Explanation explanation) {
      explanation.same_as = explanations.size();
      for (size_t n = 0; n < explanations.size(); ++n) {
        const bool comparable = explanations[n].complete == explanation.complete;
        if (comparable && explanations[n].proof.digest == explanation.proof.digest) {
          explanation.same_as = n;
          break;
        }
      }
      explanations.push_back(std::move(explanation));
    };
    for (Explanation& explanation : whole_.explanations) {
      const bool asked = asked_.settings && explanation.candidate.departures.empty();
      // Keep what was asked for, to report how far off it is.
      if (!explanation.fits() && !asked && !(IsAsMeasured(explanation) && explanation.residual <= kWellMatched)) {
        continue;
      }
      const bool again = std::any_of(explanations.begin(), explanations.end(), [&](const Explanation& other) {
        // A fault that changes no byte here is not reported.
        const bool nothing_new =
            explanation.candidate.fault != TableFault::kNone || other.sentence == Sentence(asked_, explanation);
        return nothing_new && other.proof.digest == explanation.proof.digest;
      });
      if (again || explanations.size() == most) continue;
      if (explanation.fits()) {
        explanation.candidate.departures = AllDepartures(explanation);
        explanation.sentence = Sentence(asked_, explanation);
      } else if (asked) {
        explanation.sentence =
            asked_.Asks() + (FitsSome(explanation) ? " explains a part of the data" : " does not explain the data");
      } else {
        explanation.sentence = Sentence(asked_, explanation);
      }
      add(std::move(explanation));
    }
    for (Explanation& part : parts_) {
      if (explanations.size() == most) break;
      part.candidate.departures = AllDepartures(part);
      part.sentence = Sentence(asked_, part) + ", in a part of the data";
      add(std::move(part));
    }
    SetMeasured();
  }

  static bool FitsSome(const Explanation& explanation) {
    if (!explanation.proof.misfits) return false;
    int64_t wrong = 0, all = 0;
    for (const std::vector<uint8_t>& rows : explanation.proof.misfits->rows) {
      wrong += std::count(rows.begin(), rows.end(), 1);
      all += static_cast<int64_t>(rows.size());
    }
    return 4 * wrong <= 3 * all;
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

  const Evidence& evidence_;
  const Asked& asked_;
  const Tolerance tolerance_;
  const Limits& limits_;
  WorkPool& pool_;
  const Cancellation& cancelled_;
  SampleFindings whole_;
  std::optional<Explanation> reference_;
  std::vector<Explanation> parts_;    // explanations of the faults that are not everywhere
  const Reading* reading_ = nullptr;  // reading of the first explanation
  Diagnosis diagnosis_;
};

}  // namespace

absl::StatusOr<Diagnosis> Diagnose(const Evidence& evidence, const Asked& asked, size_t most_explanations,
                                   const Limits& limits, WorkPool& pool, const Cancellation& cancelled) {
  return Diagnostician(evidence, asked, limits, pool, cancelled).Run(most_explanations);
}

}  // namespace posenc::diagnose
