// Which rotary encoding made `after` of `before`, and where it departs from what was asked for.
//
// Measured, then proven: pairs by their norms, angles by pair and position, frequencies from angles over positions;
// then the few candidates that agree with them are computed and compared bit for bit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/diagnose/candidate.h"
#include "posenc/diagnose/evidence.h"
#include "posenc/diagnose/frequencies.h"
#include "posenc/diagnose/options.h"
#include "posenc/diagnose/prove.h"

namespace posenc::diagnose {

// What the data say by themselves.
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
  bool complete = false;  // compared with all elements, not only with a sample
  double residual = 1;    // of the angles that were measured (Match); 1 where that was not asked
  size_t same_as = 0;     // index of the first explanation that gives the same bytes; its own, if it is that
  std::string sentence;
};

// Why there is no one answer, and what would give it.
struct Undecided {
  std::string code;     // UPPER_SNAKE_CASE
  std::string message;  // what is missing
  std::string remedy;   // what data would decide
};

struct Diagnosis {
  std::optional<Measured> measured;
  std::vector<Explanation> explanations;  // best first
  std::vector<Undecided> undecided;
};

// INVALID_ARGUMENT where the data cannot say anything: all zeros, no finite row.
absl::StatusOr<Diagnosis> Diagnose(const Evidence& evidence, const Asked& asked, size_t most_explanations,
                                   const Limits& limits, WorkPool& pool, const Cancellation& cancelled);

// The same of frequencies alone, [rotary_dim/2] of FP64 or FP32. Nothing of layouts and positions is read.
absl::StatusOr<Diagnosis> DiagnoseFrequencies(DType dtype, const std::vector<double>& inv_freq, const Asked& asked,
                                              size_t most_explanations, const Limits& limits);

// All that `sentence` should say of a candidate, in words.
std::string Sentence(const Asked& asked, const Explanation& explanation);

}  // namespace posenc::diagnose
