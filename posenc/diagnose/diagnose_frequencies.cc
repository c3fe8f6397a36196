#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
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

// True if the frequencies, both of this type, differ by roundings only: by the tolerance in units of the last place,
// else as much as float32's recipes do. A frequency beyond the type's range is near nothing.
bool IsNear(const Asked& asked, DType dtype, double given, double computed) {
  if (given == computed || !std::isfinite(computed)) return given == computed;
  if (!asked.tolerance_ulp) return std::fabs(given - computed) <= kRecipe * std::fabs(computed);
  const bool narrow = dtype == DType::kFP32;
  const double unit = std::ldexp(1, std::max(std::ilogb(computed), narrow ? -126 : -1022) - (narrow ? 23 : 52));
  return std::fabs(given - computed) <= *asked.tolerance_ulp * unit;
}

// Returns the longest length that has the frequencies of a short one. The settings depend on the length.
int64_t LongestOfShort(const RotarySettings& settings) {
  const auto& p = std::get<RopeParameters>(settings.frequencies);
  const auto length =
      p.original_max_position_embeddings ? p.original_max_position_embeddings : settings.max_position_embeddings;
  return static_cast<int64_t>(std::clamp(std::floor(length.value_or(1)), 1.0, kLargestPosition / 2));
}

// The length of "dynamic" frequencies, fitted to the measured base.
struct FittedLength {
  int64_t length;
  bool is_clear;  // false: as likely, it is another base that happens to have a length
};

// Returns the length of `option`, what was asked for, that gives the measured base; nullopt if there is none, or if it
// is likelier that the base itself was applied.
std::optional<FittedLength> FitLength(const Option& option, const MeasuredFrequencies& measured, const Limits& limits) {
  const auto rotary = Rotary::Create(option.settings, Frequencies::kExact, limits);
  if (!rotary.ok() || !rotary->NeedsSeqLen()) return std::nullopt;
  const auto& p = std::get<RopeParameters>(rotary->settings().frequencies);
  const auto law = FindPowerLaw(measured);
  if (p.rope_type != "dynamic" || !law) return std::nullopt;
  // Solves theta' = theta (s L / Lmax - (s - 1))^(d / (d - 2)) for L.
  const auto width = static_cast<double>(rotary->rotary_dim()), s = *p.factor;
  const auto longest = static_cast<double>(LongestOfShort(rotary->settings()));
  const double bracket = std::pow(law->rope_theta / *p.rope_theta, (width - 2) / width);
  const double length = longest * (bracket + s - 1) / s, whole = std::round(length);
  if (!(whole > longest && whole <= kLargestPosition)) return std::nullopt;
  // The chance that the length of some base is as near a whole number. The longer, the less a length changes the base.
  const double error = 2 * law->theta_uncertainty * longest * bracket / s;
  const double chance = 2 * std::max(std::fabs(length - whole), error);
  const bool round_base = std::fabs(RoundedTo(3, law->rope_theta) / law->rope_theta - 1) <= kRecipe;
  constexpr double kRare = 0.01, kClear = 0.1;
  if (round_base && chance > kRare) return std::nullopt;
  return FittedLength{static_cast<int64_t>(whole), !round_base && chance <= kClear};
}

// Returns the option. If its frequencies depend on the length, returns it at a short length and at a longer one: one
// that uses the long list or, if nothing departs, the fitted one.
std::vector<Option> AtLengths(const Option& option, const std::optional<FittedLength>& fitted, const Limits& limits) {
  const auto rotary = Rotary::Create(option.settings, Frequencies::kExact, limits);
  if (option.seq_len || !rotary.ok() || !rotary->NeedsSeqLen()) return {option};
  const int64_t longest = LongestOfShort(rotary->settings());
  std::vector<int64_t> lengths = {longest};
  const bool by_list = std::get<RopeParameters>(rotary->settings().frequencies).rope_type == "longrope";
  if (by_list) {
    lengths.push_back(2 * longest);
  } else if (fitted && option.departures.empty() && option.fault == TableFault::kNone) {
    lengths.push_back(fitted->length);
  }
  std::vector<Option> options;
  for (const int64_t length : lengths) {
    options.push_back(option);
    options.back().settings = rotary->settings();
    options.back().seq_len = length;
    if (length > longest && !by_list) ++options.back().free_values;
  }
  return options;
}

// "lengths up to 4096", "lengths above 4096" or "length 5000".
std::string Lengths(const Candidate& candidate) {
  const int64_t longest = LongestOfShort(candidate.settings);
  if (*candidate.seq_len <= longest) return fmt::format("lengths up to {}", longest);
  const bool by_list = std::get<RopeParameters>(candidate.settings.frequencies).rope_type == "longrope";
  return by_list ? fmt::format("lengths above {}", longest) : fmt::format("length {}", *candidate.seq_len);
}

bool IsExpected(const Asked& asked, const Explanation& e) { return asked.settings && e.candidate.departures.empty(); }

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
    InterruptionPoint();  // others get no turn while a plan is computed, because it is for a cache
    const auto computed = FrequenciesOf(best.candidate, arithmetic, limits);
    if (!computed.ok() || computed->size() != inv_freq.size()) continue;
    Proof proof;
    const std::vector<std::byte> rounded = Rounded(dtype, *computed);
    std::vector<double> values(inv_freq.size());
    Convert(dtype, DType::kFP64, rounded.data(), values.data(), values.size());
    const size_t first = proof.comparison.Add(dtype, rounded.data(), theirs.data(), inv_freq.size());
    proof.digest = XXH3_64bits(rounded.data(), rounded.size());
    if (first < inv_freq.size()) {
      proof.first =
          Difference{.index = {static_cast<int64_t>(first)}, .computed = (*computed)[first], .given = inv_freq[first]};
    }
    proof.misfits = Misfits{.within_row = {std::vector<uint8_t>(inv_freq.size())}};
    for (size_t k = 0; k < inv_freq.size(); ++k) {
      if (IsNear(asked, dtype, inv_freq[k], values[k])) continue;
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

// Adds the explanation unless an earlier known one gives the same frequencies. If that one departs, the departures are
// an alternative to it, unless more numbers were fitted.
void AddUnlessSame(Explanation explanation, std::vector<Explanation>* all) {
  const auto same = std::find_if(all->begin(), all->end(), [&](const Explanation& e) {
    return e.proof.digest == explanation.proof.digest && IsKnown(e);
  });
  if (same == all->end()) return all->push_back(std::move(explanation));
  if (same->candidate.departures.empty() || explanation.candidate.free_values > same->candidate.free_values) return;
  same->candidate.aliases.push_back(std::move(explanation.candidate.departures));
}

// Says in which pairs the frequencies are others, and the pair that is farthest off. `wanted`: the expected ones.
void Describe(const Explanation& wanted, const std::vector<double>& inv_freq, const Limits& limits, Fault* fault) {
  const std::vector<uint8_t>& wrong = wanted.proof.misfits->within_row[0];
  const auto computed = FrequenciesOf(wanted.candidate, Frequencies::kExact, limits);
  if (!computed.ok()) return;  // they were computed before
  const std::vector<double>& expected = *computed;
  size_t farthest = 0;
  double largest = -1;
  for (size_t k = 0; k < wrong.size(); ++k) {
    const double off = std::fabs(std::log(std::fabs(inv_freq[k] / expected[k])));
    if (wrong[k] && off > largest) largest = off, farthest = k;
  }
  fault->departures = {
      {"OTHER_FREQUENCIES",
       fmt::format("other frequencies: {:.6g} in pair {}, not {:.6g}: {:.6g} times", inv_freq[farthest], farthest,
                   expected[farthest], inv_freq[farthest] / expected[farthest])}};
  fault->sentence = fault->departures[0].message;
  fault->described = true;
  fault->parts = {{.pairs = Ranges(wrong)}};
}

// `all`: every explanation, the best first. `clear`: FittedLength::is_clear, if a length was fitted.
Verdict Judge(const Asked& asked, const std::vector<Explanation>& all, const std::vector<double>& inv_freq, bool clear,
              const Limits& limits) {
  Verdict verdict;
  verdict.bound = asked.tolerance_ulp ? fmt::format("{} ulp", Short(*asked.tolerance_ulp))
                                      : fmt::format("{} of each frequency", Short(kRecipe));
  const auto plain = std::find_if(all.begin(), all.end(),
                                  [&](const auto& e) { return IsExpected(asked, e) && e.candidate.free_values == 0; });
  // Fitted numbers that are more than half as many as the frequencies that they explain would explain themselves.
  const auto explains = [&](const Explanation& e) {
    const bool all_differ = plain == all.end();
    const auto values =
        all_differ ? static_cast<int64_t>(e.proof.comparison.elements()) : plain->proof.misfits->elements;
    return IsExpected(asked, e) || values >= 2 * e.candidate.free_values;
  };
  const auto best =
      std::find_if(all.begin(), all.end(), [&](const auto& e) { return e.fits() && IsKnown(e) && explains(e); });
  // A length that was fitted is expected only if nothing that needs no fit comes nearer.
  const bool may_be_fitted = best != all.end() && (IsExpected(asked, *best) || best->candidate.free_values > 0);
  const auto wanted = std::find_if(all.begin(), all.end(), [&](const auto& e) {
    return IsExpected(asked, e) && (e.candidate.free_values == 0 || (may_be_fitted && e.fits()));
  });
  const bool reference = wanted != all.end();
  const bool unclear = reference && wanted->candidate.free_values > 0 && !clear;
  if (best == all.end() || unclear) {
    Fault fault{.sentence = unclear
                                ? fmt::format("the frequencies may be those of a length near {}, or of another base",
                                              *wanted->candidate.seq_len)
                                : "the frequencies match no known settings"};
    if (reference && !unclear) Describe(*wanted, inv_freq, limits, &fault);
    verdict.faults.push_back(std::move(fault));
  } else if (!asked.settings || (reference && wanted->fits())) {
    verdict.kind = VerdictKind::kMatches;
    if (!reference) {
      verdict.sentence = Sentence(asked, *best);
      return verdict;
    }
    const Comparison& comparison = wanted->proof.comparison;
    verdict.sentence = fmt::format("{} of {} frequencies are equal, all within {}", comparison.equal(),
                                   comparison.elements(), verdict.bound);
    if (wanted->candidate.seq_len) verdict.sentence += ", for " + Lengths(wanted->candidate);
    return verdict;
  } else {
    Fault fault{.sentence = Sentence(best->candidate.departures), .departures = best->candidate.departures};
    constexpr size_t kMostAlternatives = 3;
    for (const std::vector<Departure>& alias : best->candidate.aliases) {
      const bool longer = alias.size() > fault.departures.size() || Sentence(alias) == fault.sentence;
      if (!longer && fault.alternatives.size() < kMostAlternatives) fault.alternatives.push_back(alias);
    }
    fault.free_values = best->candidate.free_values;
    fault.values = static_cast<int64_t>(best->proof.comparison.elements());
    if (reference) {
      fault.parts = {{.pairs = Ranges(wanted->proof.misfits->within_row[0])}};
      fault.values = wanted->proof.misfits->elements;
    }
    verdict.faults.push_back(std::move(fault));
  }
  Conclude(TokenAxis{"token", "tokens", 0}, reference && !unclear, &verdict);
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
  std::optional<FittedLength> length;
  if (!options.empty()) length = FitLength(options[0], measured, limits);
  for (Option& option : MeasuredOptions(asked, width, measured, 1)) options.push_back(std::move(option));
  Diagnosis diagnosis;
  const auto add = [&](const Option& each) {
    for (const Option& option : AtLengths(each, length, limits)) {
      auto explanation = Compare(option, asked, dtype, inv_freq, limits);
      if (!explanation) continue;
      if (asked.settings && *asked.settings->rotary_dim != width) {
        explanation->candidate.departures.insert(
            explanation->candidate.departures.begin(),
            {"ROTARY_WIDTH", fmt::format("these are frequencies of {} dimensions, {} {}", width, asked.Wants(),
                                         *asked.settings->rotary_dim)});
      }
      AddUnlessSame(*std::move(explanation), &diagnosis.explanations);
    }
  };
  for (const Option& option : options) add(option);
  const auto is_known = [](const Explanation& e) { return e.fits() && IsKnown(e); };
  constexpr int64_t kMostFitted = 512;  // pairs; each step of a fit computes all of them
  if (width / 2 <= kMostFitted &&
      std::none_of(diagnosis.explanations.begin(), diagnosis.explanations.end(), is_known)) {
    const Angles no_angles{.pairs = width / 2};
    for (Option& option : FittedOptions(asked, width, no_angles, measured, none, limits)) {
      AddRanges(option.settings, limits, &option.departures);
      add(option);
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
  diagnosis.verdict = Judge(asked, diagnosis.explanations, inv_freq, length && length->is_clear, limits);
  if (diagnosis.explanations.size() > most_explanations) diagnosis.explanations.resize(most_explanations);
  for (size_t n = 0; n < diagnosis.explanations.size(); ++n) {
    Explanation& explanation = diagnosis.explanations[n];
    explanation.same_as = n;
    explanation.sentence = IsExpected(asked, explanation) && explanation.candidate.seq_len
                               ? fmt::format("{} of {} was applied", asked.Asks(), Lengths(explanation.candidate))
                               : Sentence(asked, explanation);
  }
  diagnosis.measured =
      Measured{.layout = {Pairing::kHalfSplit, Pairing::kHalfSplit, width, 0}, .frequencies = measured.pairs};
  return diagnosis;
}

}  // namespace posenc::diagnose
