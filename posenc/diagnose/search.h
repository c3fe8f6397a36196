// Search: derives the few candidates worth computing from the measurements.
#pragma once

#include <vector>

#include "posenc/diagnose/angles.h"
#include "posenc/diagnose/diagnose.h"
#include "posenc/diagnose/pairs.h"

namespace posenc::diagnose {

// xPos's scale that was removed from `after`. signs, per operand: 1 if it had its own scale, -1 if it had the other's
// (the reciprocal), 0 if it had none.
struct Scales {
  Xpos xpos;
  std::vector<int> signs;
};

// One layout that the norms allow, and the measurements that follow from it.
struct Reading {
  std::vector<PairLayout> layouts;  // one per operand
  double norm_residual = 0;
  Angles angles;
  MeasuredFrequencies frequencies;
  std::optional<Scales> scales = {};
};

// Residuals of norms and angles of a rotation are below this, also with bfloat16 intermediate results.
inline constexpr double kNotARotation = 2e-3;

inline constexpr double kWellMatched = 1e-3;  // a wrong shift leaves a larger residual

// SetLayout() copies the reading's pairs to the candidate. LayoutDepartures() returns how they depart from what was
// asked for, operand by operand.
void SetLayout(const Reading& reading, Candidate* candidate);
std::vector<Departure> LayoutDepartures(const Asked& asked, const Reading& reading, const Evidence& sample);

std::vector<Reading> ReadPairs(const Evidence& sample, const std::vector<Numbers>& numbers,
                               const std::vector<ElementCensus>& census, const Asked& asked);

// ReadPairs() after removal of xPos's scale; empty if norms do not change as that scale changes them.
std::vector<Reading> ReadScaledPairs(const Evidence& sample, const std::vector<Numbers>& numbers,
                                     const std::vector<ElementCensus>& census, const Asked& asked);

struct Scored {
  Candidate candidate;
  size_t reading = 0;
  double residual = 1;  // Match::residual
};
// Returns at most 24 candidates, best first; fewer if cancelled. Those that fit much worse than the best are left out.
// `only`: options to try in place of the usual ones; may be null.
std::vector<Scored> FindCandidates(const Evidence& sample, const std::vector<Reading>& readings, const Asked& asked,
                                   const std::vector<Option>* only, const Limits& limits,
                                   const Cancellation& cancelled);

// Candidates for a given table, which has no frequencies to compare angles with: each direction, at the usual wrong
// positions. Empty if no table was asked for.
std::vector<Candidate> TableCandidates(const Evidence& sample, const std::vector<Reading>& readings,
                                       const Asked& asked);

// The candidate exactly as asked for; absent without settings.
std::optional<Candidate> AskedCandidate(const Asked& asked);

}  // namespace posenc::diagnose
