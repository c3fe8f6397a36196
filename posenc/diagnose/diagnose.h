// Diagnosis of a rotary encoding: which one made `after` from `before`, and how it departs from what was asked for.
//
// It measures first: pairs from their norms, angles by pair and position, frequencies from angles over positions. Then
// it computes the few candidates that agree and compares them bit for bit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/diagnose/angles.h"
#include "posenc/diagnose/candidate.h"
#include "posenc/diagnose/evidence.h"
#include "posenc/diagnose/options.h"
#include "posenc/diagnose/prove.h"
#include "posenc/diagnose/verdict.h"

namespace posenc::diagnose {

// Measurements that do not depend on what was asked for.
struct Measured {
  PairLayout layout;
  double norm_residual = 0;  // PairHypothesis::residual
  double scatter = 0;        // Angles::scatter
  double attention_scaling = 1;
  std::vector<MeasuredFrequency> frequencies;
};

struct Explanation {
  Candidate candidate;
  Variant variant;
  std::vector<Precision> same_precisions;  // other presets that give the same bytes here
  Proof proof;
  uint64_t sample_digest = 0;  // Proof::digest of the sample by which it was found
  bool complete = false;       // compared with all elements, not only with a sample
  double residual = 1;         // Match::residual of the measured angles; 1 if they were not matched
  // True if every element that was compared is within the tolerance.
  bool fits() const { return proof.misfits && proof.misfits->none(); }
  size_t same_as = 0;  // index of the first explanation with the same bytes; its own if it is the first
  std::string sentence;
};

// A reason why there is no single answer, and the data that would give one.
struct Undecided {
  std::string code;     // UPPER_SNAKE_CASE
  std::string message;  // the missing evidence
  std::string remedy;   // the data that would decide
};

struct Diagnosis {
  Verdict verdict;
  std::optional<Measured> measured;
  std::vector<Explanation> explanations;  // best first
  std::vector<Undecided> undecided;
};

// Returns INVALID_ARGUMENT if the data cannot show anything: `before` is all zeros, or no row is finite.
absl::StatusOr<Diagnosis> Diagnose(const Evidence& evidence, const Asked& asked, size_t most_explanations,
                                   const Limits& limits, WorkPool& pool, const Cancellation& cancelled);

// Diagnoses frequencies alone: [rotary_dim/2] of FP64 or FP32. Reads no layouts or positions. Returns INVALID_ARGUMENT
// if a frequency is not finite.
absl::StatusOr<Diagnosis> DiagnoseFrequencies(DType dtype, const std::vector<double>& inv_freq, const Asked& asked,
                                              size_t most_explanations, const Limits& limits);

// Text for Explanation::sentence.
std::string Sentence(const Asked& asked, const Explanation& explanation);

}  // namespace posenc::diagnose
