#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/status.h"
#include "posenc/diagnose/candidate_table.h"
#include "posenc/diagnose/departures.h"
#include "posenc/diagnose/diagnose.h"
#include "posenc/kernels/convert.h"

namespace posenc::diagnose {
namespace {

std::vector<std::byte> Rounded(DType dtype, const std::vector<double>& values) {
  std::vector<std::byte> bytes(values.size() * SizeOf(dtype));
  Convert(DType::kFP64, dtype, values.data(), bytes.data(), values.size());
  return bytes;
}

absl::StatusOr<std::vector<double>> FrequenciesOf(const Candidate& candidate, Frequencies arithmetic,
                                                  const Limits& limits) {
  Tokens none;
  none.bounds = {0, 0};
  POSENC_ASSIGN_OR_RETURN(Effective effective, EffectiveSettings(candidate, arithmetic, none, limits));
  POSENC_ASSIGN_OR_RETURN(const Rotary rotary, Rotary::Create(std::move(effective.settings), arithmetic, limits));
  if (rotary.NeedsSeqLen() && !candidate.seq_len) return absl::FailedPreconditionError("no length was given");
  POSENC_ASSIGN_OR_RETURN(const auto plan, rotary.Plan(candidate.seq_len.value_or(0)));
  return plan->inv_freq;
}

// Treats each frequency as measured to its type's last place.
MeasuredFrequencies AsMeasured(DType dtype, const std::vector<double>& inv_freq) {
  MeasuredFrequencies measured;
  for (double f : inv_freq) {
    const double uncertainty = std::fabs(f) * (dtype == DType::kFP32 ? 0x1p-24 : 0x1p-53);
    measured.pairs.push_back({.inv_freq = f, .uncertainty = uncertainty});
  }
  return measured;
}

// Distance of two frequencies that counts as rounding: the tolerance in units of the last place, else float32's
// recipes.
double Allowed(const Asked& asked, DType dtype, double computed) {
  if (!asked.tolerance_ulp) return kRecipe * std::fabs(computed);
  const int mantissa_bits = dtype == DType::kFP32 ? 23 : 52;
  return computed == 0 ? 0 : *asked.tolerance_ulp * std::ldexp(1, std::ilogb(computed) - mantissa_bits);
}

std::optional<Explanation> Compare(const Option& option, const Asked& asked, DType dtype,
                                   const std::vector<double>& inv_freq, const Limits& limits) {
  Explanation best{.complete = true};
  best.candidate = {.settings = option.settings,
                    .offsets = {0},
                    .seq_len = option.seq_len,
                    .fault = option.fault,
                    .free_values = option.free_values,
                    .departures = option.departures};
  if (option.fault != TableFault::kNone) best.candidate.departures.push_back(FaultDeparture(option.fault));
  const std::vector<std::byte> theirs = Rounded(dtype, inv_freq);
  bool found = false;
  for (Frequencies arithmetic : {Frequencies::kExact, Frequencies::kFloat32, Frequencies::kFloat64}) {
    const auto computed = FrequenciesOf(best.candidate, arithmetic, limits);
    if (!computed.ok() || computed->size() != inv_freq.size()) continue;
    Proof proof;
    const size_t first = proof.comparison.Add(dtype, Rounded(dtype, *computed).data(), theirs.data(), inv_freq.size());
    if (first < inv_freq.size()) {
      proof.first =
          Difference{.index = {static_cast<int64_t>(first)}, .computed = (*computed)[first], .given = inv_freq[first]};
    }
    proof.misfits = Misfits{.within_row = {std::vector<uint8_t>(inv_freq.size())}};
    for (size_t k = 0; k < inv_freq.size(); ++k) {
      const double given = inv_freq[k], ours = (*computed)[k];
      if (std::fabs(given - ours) <= Allowed(asked, dtype, ours)) continue;
      ++proof.misfits->elements;
      proof.misfits->within_row[0][k] = 1;
    }
    if (found && proof.comparison.mean_log() >= best.proof.comparison.mean_log()) continue;
    best.proof = std::move(proof);
    best.variant = {{arithmetic, TableDtype::kFloat32, Rounding::kOnce}, {dtype}};
    found = true;
  }
  if (!found) return std::nullopt;
  return best;
}

bool IsKnown(const Explanation& e) {
  return e.candidate.departures.empty() || e.candidate.departures.back().code != "UNKNOWN_FREQUENCIES";
}

// `all`: every explanation, the best first.
Verdict Judge(const Asked& asked, const std::vector<Explanation>& all) {
  Verdict verdict;
  verdict.bound = asked.tolerance_ulp ? fmt::format("{} ulp", Short(*asked.tolerance_ulp))
                                      : fmt::format("{} of each frequency", Short(kRecipe));
  const auto best = std::find_if(all.begin(), all.end(), [](const auto& e) { return e.fits() && IsKnown(e); });
  const auto wanted =
      std::find_if(all.begin(), all.end(), [](const auto& e) { return e.candidate.departures.empty(); });
  const bool reference = asked.settings && wanted != all.end();
  if (best == all.end()) {
    Fault fault{.sentence = "the frequencies match no known settings"};
    if (reference) fault.parts = {{.pairs = Ranges(wanted->proof.misfits->within_row[0])}};
    verdict.faults.push_back(std::move(fault));
  } else if (!asked.settings || (reference && wanted->fits())) {
    verdict.kind = VerdictKind::kMatches;
    const Comparison& comparison = wanted->proof.comparison;
    verdict.sentence = !asked.settings ? Sentence(asked, *best)
                                       : fmt::format("{} of {} frequencies are equal, all within {}",
                                                     comparison.equal(), comparison.elements(), verdict.bound);
    return verdict;
  } else {
    Fault fault{.sentence = Sentence(best->candidate.departures), .departures = best->candidate.departures};
    fault.free_values = best->candidate.free_values;
    fault.values = static_cast<int64_t>(best->proof.comparison.elements());
    if (reference) {
      fault.parts = {{.pairs = Ranges(wanted->proof.misfits->within_row[0])}};
      fault.values = wanted->proof.misfits->elements;
    }
    verdict.faults.push_back(std::move(fault));
  }
  Conclude(TokenAxis{"token", "tokens", 0}, reference, &verdict);
  return verdict;
}

}  // namespace

absl::StatusOr<Diagnosis> DiagnoseFrequencies(DType dtype, const std::vector<double>& inv_freq, const Asked& asked,
                                              size_t most_explanations, const Limits& limits) {
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    if (!std::isfinite(inv_freq[i])) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("inv_freq[{}]", i), fmt::format("{}", inv_freq[i]),
                             "must be finite");
    }
  }
  const auto width = static_cast<int64_t>(2 * inv_freq.size());
  const MeasuredFrequencies measured = AsMeasured(dtype, inv_freq);
  Tokens none;
  none.bounds = {0, 0};
  std::vector<Option> options = OptionsOf(asked, width, none);
  for (Option& option : MeasuredOptions(asked, width, measured, 1)) options.push_back(std::move(option));
  Diagnosis diagnosis;
  for (const Option& option : options) {
    if (auto explanation = Compare(option, asked, dtype, inv_freq, limits)) {
      if (asked.settings && *asked.settings->rotary_dim != width) {
        explanation->candidate.departures.insert(
            explanation->candidate.departures.begin(),
            {"ROTARY_WIDTH", fmt::format("these are frequencies of {} dimensions, {} {}", width, asked.Wants(),
                                         *asked.settings->rotary_dim)});
      }
      diagnosis.explanations.push_back(*std::move(explanation));
    }
  }
  // Measured frequencies always equal themselves, so they rank first only if nothing else is near.
  std::stable_sort(
      diagnosis.explanations.begin(), diagnosis.explanations.end(), [](const Explanation& a, const Explanation& b) {
        const auto rank = [](const Explanation& e) {
          const bool itself =
              !e.candidate.departures.empty() && e.candidate.departures.back().code == "UNKNOWN_FREQUENCIES";
          return itself ? 3.5 : e.proof.comparison.mean_log();
        };
        return rank(a) < rank(b);
      });
  diagnosis.verdict = Judge(asked, diagnosis.explanations);
  if (diagnosis.explanations.size() > most_explanations) diagnosis.explanations.resize(most_explanations);
  for (size_t n = 0; n < diagnosis.explanations.size(); ++n) {
    diagnosis.explanations[n].same_as = n;
    diagnosis.explanations[n].sentence = Sentence(asked, diagnosis.explanations[n]);
  }
  diagnosis.measured =
      Measured{.layout = {Pairing::kHalfSplit, Pairing::kHalfSplit, width, 0}, .frequencies = measured.pairs};
  return diagnosis;
}

}  // namespace posenc::diagnose
