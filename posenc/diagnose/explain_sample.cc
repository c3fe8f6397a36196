#include "posenc/diagnose/explain_sample.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "posenc/base/status.h"
#include "posenc/diagnose/departures.h"
#include "posenc/methods/rope/methods.h"

namespace posenc::diagnose {
namespace {

// Distance by which explanations are ranked: 0 if all bits are equal. A departure must bring the data nearer than
// without it, and so must a fitted number.
double Distance(const Explanation& explanation) {
  const Candidate& candidate = explanation.candidate;
  double distance = explanation.proof.comparison.mean_log();
  // Near position 0 a recurrence gives the same as frequencies that are one ULP off, as other systems' are. Therefore
  // it must explain more than one element in a thousand.
  if (candidate.fault == TableFault::kRecurrence) distance = std::max(1.5 * distance, 1e-3);
  if (distance == 0) return 0;
  const auto departures = static_cast<double>(candidate.departures.size());
  return distance * (1 + 0.05 * departures) + 1e-4 * (departures + static_cast<double>(candidate.free_values));
}

// True if the fault rounds tables to the type that they have in this variant.
bool RoundsAgain(TableFault fault, const Variant& variant) {
  if (variant.precision.table_dtype != TableDtype::kTensor) return false;
  const DType type = fault == TableFault::kTableBF16 ? DType::kBF16 : DType::kFP16;
  return (fault == TableFault::kTableBF16 || fault == TableFault::kTableFP16) &&
         std::all_of(variant.compute.begin(), variant.compute.end(), [type](DType of) { return of == type; });
}

// Proves the candidate in the variant that comes nearest to the evidence; absent if none can be computed.
absl::StatusOr<std::optional<Explanation>> Nearest(const Candidate& candidate, const std::vector<Variant>& variants,
                                                   const Evidence& evidence, const Tolerance& tolerance,
                                                   const Limits& limits, WorkPool& pool,
                                                   const Cancellation& cancelled) {
  std::optional<Explanation> best;
  for (const Variant& variant : variants) {
    if (RoundsAgain(candidate.fault, variant)) continue;
    auto proof = Prove(candidate, variant, evidence, limits, pool, cancelled);
    if (!proof.ok()) {
      POSENC_RETURN_IF_ERROR(cancelled());
      continue;
    }
    if (best && proof->digest == best->proof.digest) {
      if (variant.compute == best->variant.compute) best->same_precisions.push_back(variant.precision);
      continue;
    }
    if (best && proof->comparison.mean_log() >= best->proof.comparison.mean_log()) continue;
    best = Explanation{.candidate = candidate, .variant = variant, .proof = *std::move(proof)};
  }
  if (!best) return best;
  POSENC_ASSIGN_OR_RETURN(best->proof, Prove(candidate, best->variant, evidence, limits, pool, cancelled, &tolerance));
  best->sample_digest = best->proof.digest;
  return best;
}

// Moves an explanation by a rounder number before the first one, if both fit and neither gives clearly more bits. One
// base, for example, follows from a length, a factor or the base itself: which comes nearest is chance, unless one
// gives all bits.
void PreferRound(std::vector<Explanation>* explanations) {
  constexpr double kAbout = 4;
  if (explanations->empty()) return;
  const Explanation& first = explanations->front();
  const double distance = first.proof.comparison.mean_log();
  if (!first.fits() || first.candidate.digits == 0 || distance == 0) return;
  auto roundest = explanations->begin();
  for (auto one = roundest + 1; one != explanations->end(); ++one) {
    if (one->complete == first.complete && one->fits() && one->candidate.digits > 0 &&
        one->candidate.digits < roundest->candidate.digits &&
        one->candidate.departures.size() == first.candidate.departures.size() &&
        one->proof.comparison.mean_log() <= kAbout * distance) {
      roundest = one;
    }
  }
  std::rotate(explanations->begin(), roundest, roundest + 1);
}

class Explainer {
 public:
  Explainer(const Asked& asked, const Tolerance& tolerance, const Limits& limits, WorkPool& pool,
            const Cancellation& cancelled, SampleFindings* findings)
      : asked_(asked), tolerance_(tolerance), limits_(limits), pool_(pool), cancelled_(cancelled), f_(*findings) {}

  absl::Status Run() {
    for (const Rows& rows : f_.sample.operands) {
      f_.numbers.emplace_back(rows);
      f_.census.push_back(Census(f_.numbers.back()));
    }
    if (std::any_of(f_.census.begin(), f_.census.end(), [](const ElementCensus& c) { return c.finite_rows == 0; })) {
      return absl::OkStatus();
    }
    if (f_.changed()) Read();
    if (!f_.readings.empty() && f_.readings[0].norm_residual <= kNotARotation) {
      scored_ = FindCandidates(f_.sample, f_.readings, asked_, nullptr, limits_, cancelled_);
      POSENC_RETURN_IF_ERROR(cancelled_());
    }
    for (const Scored& scored : scored_) POSENC_RETURN_IF_ERROR(Try(scored.candidate, scored.residual));
    if (const auto candidate = AskedCandidate(asked_)) POSENC_RETURN_IF_ERROR(Try(*candidate));
    for (const Candidate& candidate : TableCandidates(f_.sample, f_.readings, asked_)) {
      POSENC_RETURN_IF_ERROR(Try(candidate));
    }
    Rank(&f_.explanations);
    if (!AllEqual() || BestIsRounded() || BestShiftsOnePosition()) POSENC_RETURN_IF_ERROR(TryFaults());
    if (!Fits() || (!AllEqual() && BestDeparts())) POSENC_RETURN_IF_ERROR(TryTurns());
    if (!Fits() || BaseMayBeScaled() || BaseIsNear()) POSENC_RETURN_IF_ERROR(TryFitted());
    return absl::OkStatus();
  }

 private:
  void Read() {
    f_.readings = ReadPairs(f_.sample, f_.numbers, f_.census, asked_);
    if (f_.readings.empty() || f_.readings[0].norm_residual <= RoundingResidual()) return;
    auto scaled = ReadScaledPairs(f_.sample, f_.numbers, f_.census, asked_);
    const bool better = !scaled.empty() && scaled[0].norm_residual < f_.readings[0].norm_residual / 10;
    if (better) f_.readings = std::move(scaled);
  }

  // A larger norm residual is not due to rounding, because a rotation keeps norms.
  double RoundingResidual() const {
    const double rounding = RoundingOf(f_.sample);
    return std::min(64 * rounding * rounding, kNotARotation);
  }

  bool AllEqual() const { return !f_.explanations.empty() && f_.explanations[0].proof.comparison.share() == 1; }
  // True if a departure explains the data best.
  bool BestDeparts() const {
    return asked_.settings && !f_.explanations.empty() && !f_.explanations[0].candidate.departures.empty();
  }
  // True if that is a rounding: others may give the same bytes.
  bool BestIsRounded() const { return BestDeparts() && f_.explanations[0].candidate.fault != TableFault::kNone; }
  // True if that is a shift of the only position: a rounding may give the same position.
  bool BestShiftsOnePosition() const {
    const std::vector<double>& positions = f_.sample.tokens.positions[0];
    return BestDeparts() && f_.explanations[0].candidate.position_shift != 0 &&
           std::equal(positions.begin() + 1, positions.end(), positions.begin());
  }
  // True if a fitted base explains the data best, but the expected scaling changes the base: one of its numbers may
  // explain them by a rounder number.
  bool BaseMayBeScaled() const {
    if (!BestDeparts() || f_.explanations[0].candidate.free_values == 0) return false;
    const auto* p = std::get_if<RopeParameters>(&asked_.settings->frequencies);
    const RopeMethod* method = p == nullptr ? nullptr : FindRopeMethod(p->rope_type);
    return method != nullptr && method->scales_theta;
  }
  // True if a fitted base explains the data best that is only a rounding off: of a power of it, for example.
  bool BaseIsNear() const {
    constexpr double kNear = 1e-4;
    if (!BestDeparts() || f_.explanations[0].candidate.free_values == 0) return false;
    const auto* asked = std::get_if<RopeParameters>(&asked_.settings->frequencies);
    const auto* found = std::get_if<RopeParameters>(&f_.explanations[0].candidate.settings.frequencies);
    return asked != nullptr && found != nullptr && asked->rope_theta && found->rope_theta &&
           std::fabs(*found->rope_theta / *asked->rope_theta - 1) < kNear;
  }
  // True if something but the measured frequencies fits.
  bool Fits() const {
    return std::any_of(f_.explanations.begin(), f_.explanations.end(),
                       [](const Explanation& one) { return one.fits() && !IsAsMeasured(one); });
  }

  absl::Status Try(const Candidate& candidate, double residual = 1) {
    POSENC_ASSIGN_OR_RETURN(std::optional<Explanation> one,
                            ProveNearest(candidate, f_.sample, asked_, tolerance_, limits_, pool_, cancelled_));
    if (!one) return absl::OkStatus();
    one->residual = residual;
    f_.explanations.push_back(*std::move(one));
    return absl::OkStatus();
  }

  // The asked candidate with the pairs of a reading of the same width, and the departures of these pairs.
  std::optional<Candidate> AskedAsRead() const {
    std::optional<Candidate> candidate = AskedCandidate(asked_);
    if (!candidate) return std::nullopt;
    for (const Reading& reading : f_.readings) {
      if (*candidate->settings.rotary_dim != reading.layouts[0].rotary_dim) continue;
      SetLayout(reading, &*candidate);
      candidate->departures = LayoutDepartures(asked_, reading, f_.sample);
      break;
    }
    return candidate;
  }

  // True if the fault rounds tables to the type that after has: right without a precision that was asked for.
  bool IsOwnType(TableFault fault) const {
    const DType type = fault == TableFault::kTableBF16 ? DType::kBF16 : DType::kFP16;
    return (fault == TableFault::kTableBF16 || fault == TableFault::kTableFP16) &&
           std::all_of(f_.sample.operands.begin(), f_.sample.operands.end(),
                       [type](const Rows& rows) { return rows.after_dtype == type; });
  }

  // True if the fault has an effect. A second departure must explain something beyond the tolerance, and so must a
  // recurrence, which frequencies that are one ULP off resemble: it must also give most of the elements that are not
  // equal.
  static bool Explains(TableFault fault, const Candidate& base, const Proof& without, const Proof& with) {
    if (without.digest == with.digest) return false;
    if (!base.departures.empty() && without.misfits->none()) return false;
    // Rounded tables give most bits. Their tolerance alone says nothing: it hides errors of phases in wider types.
    const bool of_tables = FaultDeparture(fault).code == "TABLES_ROUNDED";
    if (of_tables && with.comparison.share() < 0.5) return false;
    if (fault != TableFault::kRecurrence) return true;
    const double left = 1 - with.comparison.share(), left_without = 1 - without.comparison.share();
    return !without.misfits->none() && left <= left_without / 8;
  }

  // Tries known faults of frameworks' tables.
  absl::Status TryFaults() {
    if (!f_.IsRotation() || f_.explanations.empty()) return absl::OkStatus();
    std::vector<Candidate> bases;
    for (size_t n = 0; n < std::min<size_t>(2, f_.explanations.size()); ++n) {
      bases.push_back(f_.explanations[n].candidate);
    }
    // Rounded positions may have matched other settings.
    if (const std::optional<Candidate> straight = AskedAsRead()) bases.push_back(*straight);
    for (const Candidate& base : bases) {
      if (base.fault != TableFault::kNone) continue;
      for (const TableFault fault :
           {TableFault::kTableBF16, TableFault::kTableFP16, TableFault::kTableE4M3, TableFault::kTableE5M2,
            TableFault::kTableInt8, TableFault::kAnglesBF16, TableFault::kAnglesFP16, TableFault::kPositionsBF16,
            TableFault::kPositionsFP16, TableFault::kRecurrence}) {
        if (!asked_.precision && IsOwnType(fault)) continue;
        Candidate candidate = base;
        if (candidate.attention_scaling) {  // measured through the rounded tables
          candidate.attention_scaling.reset();
          std::erase_if(candidate.departures, [](const Departure& one) { return one.code == "ATTENTION_FACTOR"; });
        }
        const Candidate exact = candidate;
        candidate.fault = fault;
        candidate.departures.push_back(FaultDeparture(fault));
        const size_t before = f_.explanations.size();
        POSENC_RETURN_IF_ERROR(Try(candidate));
        if (f_.explanations.size() == before) continue;
        const auto without =
            Prove(exact, f_.explanations.back().variant, f_.sample, limits_, pool_, cancelled_, &tolerance_);
        POSENC_RETURN_IF_ERROR(cancelled_());
        if (without.ok() && !Explains(fault, exact, *without, f_.explanations.back().proof)) f_.explanations.pop_back();
      }
    }
    Rank(&f_.explanations);
    return absl::OkStatus();
  }

  // Tries what the angles alone do not show: two rotations, cosines and sines exchanged.
  absl::Status TryTurns() {
    const std::optional<Candidate> base = AskedAsRead();
    if (!base || !f_.changed() || f_.readings.empty()) return absl::OkStatus();
    Candidate twice = *base, exchanged = *base;
    twice.turns = 2;
    twice.departures.push_back({"ROTATED_TWICE", "the rows were rotated twice"});
    exchanged.fault = TableFault::kExchanged;
    exchanged.departures.push_back(FaultDeparture(exchanged.fault));
    POSENC_RETURN_IF_ERROR(Try(twice));
    POSENC_RETURN_IF_ERROR(Try(exchanged));
    Rank(&f_.explanations);
    return absl::OkStatus();
  }

  // Tries settings with one number fitted to the measured frequencies.
  absl::Status TryFitted() {
    if (!f_.IsRotation() || !asked_.settings) return absl::OkStatus();
    const Reading& reading = f_.readings[0];
    std::vector<Option> fitted = FittedOptions(asked_, reading.layouts[0].rotary_dim, reading.angles,
                                               reading.frequencies, f_.sample.tokens, limits_);
    if (*asked_.settings->rotary_dim == reading.layouts[0].rotary_dim) {
      for (Option& recipe : FrequencyRecipes(*asked_.settings, f_.sample.tokens, limits_)) {
        fitted.push_back(std::move(recipe));
      }
    }
    if (!fitted.empty()) {
      for (const Scored& scored : FindCandidates(f_.sample, f_.readings, asked_, &fitted, limits_, cancelled_)) {
        POSENC_RETURN_IF_ERROR(Try(scored.candidate, scored.residual));
      }
    }
    POSENC_RETURN_IF_ERROR(cancelled_());
    Rank(&f_.explanations);
    return absl::OkStatus();
  }

  const Asked& asked_;
  const Tolerance& tolerance_;
  const Limits& limits_;
  WorkPool& pool_;
  const Cancellation& cancelled_;
  SampleFindings& f_;
  std::vector<Scored> scored_;
};

}  // namespace

std::vector<Variant> Variants(const Evidence& evidence, const Asked& asked) {
  std::vector<Precision> precisions = {kExactPrecision, kF32Precision, kHfEagerPrecision, kVllmPrecision,
                                       kFluxPrecision};
  // Some kernels compute exact or FP64 phases, and round the table once, to the tensor's type.
  precisions.push_back({Frequencies::kExact, TableDtype::kTensor, Rounding::kOnce});
  precisions.push_back({Frequencies::kFloat64, TableDtype::kTensor, Rounding::kOnce});
  if (asked.precision) precisions.insert(precisions.begin(), *asked.precision);
  std::vector<Variant> variants;
  for (const std::vector<DType>& compute : ComputeTypes(evidence)) {
    for (const Precision& precision : precisions) variants.push_back({precision, compute});
  }
  return variants;
}

bool SampleFindings::changed() const {
  return std::any_of(census.begin(), census.end(), [](const ElementCensus& c) { return c.first_changed >= 0; });
}

bool SampleFindings::IsRotation() const {
  return !readings.empty() && std::max(readings[0].norm_residual, readings[0].angles.scatter) <= kNotARotation;
}

bool IsAsMeasured(const Explanation& explanation) {
  const auto& departures = explanation.candidate.departures;
  return std::any_of(departures.begin(), departures.end(),
                     [](const Departure& departure) { return departure.code == "UNKNOWN_FREQUENCIES"; });
}

void Rank(std::vector<Explanation>* explanations) {
  const auto key = [](const Explanation& e) {
    const bool named = e.fits() && !IsAsMeasured(e);
    return std::tuple(!e.complete, !named, Distance(e), e.candidate.departures.size(), e.candidate.digits);
  };
  std::stable_sort(explanations->begin(), explanations->end(),
                   [&key](const Explanation& a, const Explanation& b) { return key(a) < key(b); });
  PreferRound(explanations);
}

absl::StatusOr<std::optional<Explanation>> ProveNearest(const Candidate& candidate, const Evidence& evidence,
                                                        const Asked& asked, const Tolerance& tolerance,
                                                        const Limits& limits, WorkPool& pool,
                                                        const Cancellation& cancelled) {
  return Nearest(candidate, Variants(evidence, asked), evidence, tolerance, limits, pool, cancelled);
}

absl::StatusOr<std::optional<Explanation>> ProveAsked(const Candidate& candidate, const Evidence& evidence,
                                                      const Asked& asked, const Limits& limits, WorkPool& pool,
                                                      const Cancellation& cancelled) {
  std::vector<Variant> variants;
  for (const std::vector<DType>& compute : ComputeTypes(evidence)) variants.push_back({*asked.precision, compute});
  return Nearest(candidate, variants, evidence, asked.tolerance(), limits, pool, cancelled);
}

absl::StatusOr<SampleFindings> ExplainSample(Evidence sample, const Asked& asked, const Tolerance& tolerance,
                                             const Limits& limits, WorkPool& pool, const Cancellation& cancelled) {
  SampleFindings findings{.sample = std::move(sample)};
  POSENC_RETURN_IF_ERROR(Explainer(asked, tolerance, limits, pool, cancelled, &findings).Run());
  return findings;
}

}  // namespace posenc::diagnose
