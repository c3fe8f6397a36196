// The arguments that all steps of a diagnosis share, and what they do with them.
#pragma once

#include <vector>

#include "posenc/diagnose/diagnose.h"
#include "posenc/diagnose/explain_sample.h"

namespace posenc::diagnose {

// The referenced objects must outlive it.
struct RotationCall {
  const Evidence& evidence;
  const Asked& asked;
  const Tolerance tolerance;
  const Limits& limits;
  WorkPool& pool;
  const Cancellation& cancelled;

  // The `after` type with the coarsest rounding.
  DType NarrowestAfter() const;
  // Compares the explanation with all elements. Leaves it incomplete if it can be computed for the sample only.
  absl::Status CompareWithAll(Explanation* explanation) const;
  // Departures of the candidate and of its precision.
  std::vector<Departure> AllDepartures(const Explanation& explanation) const;
};

// The faults of the rows that are not as asked for.
struct FoundFaults {
  std::vector<Fault> faults;
  std::vector<Explanation> parts;  // explanations of those that are not everywhere
  RowSet undefined;                // Misfits::undefined of these explanations, in their parts
};

// Explains the rows in which `reference`, what was asked for, is wrong (all if it is null), part by part. `whole`: the
// explanations of all rows, those with all elements complete.
absl::StatusOr<FoundFaults> FindFaults(const RotationCall& call, const SampleFindings& whole,
                                       const Explanation* reference);
// Finds a fault where `reference` is within the tolerance everywhere, but not equal: one that gives every bit, or comes
// so much nearer that it is no accident. No fault if there is none.
absl::StatusOr<FoundFaults> FindNearerFault(const RotationCall& call, const SampleFindings& whole,
                                            const Explanation& reference);

// Describes the measurements of a part that no explanation fits.
std::string Measurement(const SampleFindings& findings);

// The explanations for the answer, at most `most`, best first. `parts`: FoundFaults::parts.
std::vector<Explanation> ListExplanations(const RotationCall& call, const SampleFindings& whole,
                                          std::vector<Explanation> parts, size_t most);

}  // namespace posenc::diagnose
