// Explanations of a sample: measures it, derives the few candidates that agree, computes them and compares them bit for
// bit.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "posenc/diagnose/diagnose.h"
#include "posenc/diagnose/pairs.h"
#include "posenc/diagnose/search.h"

namespace posenc::diagnose {

struct SampleFindings {
  Evidence sample;
  std::vector<Numbers> numbers;  // one per operand, as the next
  std::vector<ElementCensus> census;
  std::vector<Reading> readings;          // empty: nothing changed
  std::vector<Explanation> explanations;  // best first

  bool changed() const;
  // If false, no rotation can be what was applied.
  bool IsRotation() const;
};

// The roundings that are tried.
std::vector<Variant> Variants(const Evidence& evidence, const Asked& asked);

// Prove() in the variant that comes nearest to the evidence, with misfits.
absl::StatusOr<std::optional<Explanation>> ProveNearest(const Candidate& candidate, const Evidence& evidence,
                                                        const Asked& asked, const Tolerance& tolerance,
                                                        const Limits& limits, WorkPool& pool,
                                                        const Cancellation& cancelled);

// ProveNearest() in the precision that was asked for only.
absl::StatusOr<std::optional<Explanation>> ProveAsked(const Candidate& candidate, const Evidence& evidence,
                                                      const Asked& asked, const Limits& limits, WorkPool& pool,
                                                      const Cancellation& cancelled);

absl::StatusOr<SampleFindings> ExplainSample(Evidence sample, const Asked& asked, const Tolerance& tolerance,
                                             const Limits& limits, WorkPool& pool, const Cancellation& cancelled);

// Sorts explanations, best first: those compared with all elements, then those that fit, then the nearest with the
// fewest departures and the roundest numbers. The sort is stable.
void Rank(std::vector<Explanation>* explanations);

// True if the explanation only repeats the measured frequencies.
bool IsAsMeasured(const Explanation& explanation);

}  // namespace posenc::diagnose
