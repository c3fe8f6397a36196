// From what was measured to the few candidates worth computing.
#pragma once

#include <vector>

#include "posenc/diagnose/angles.h"
#include "posenc/diagnose/diagnose.h"
#include "posenc/diagnose/xpos_scale.h"

namespace posenc::diagnose {

// xPos's scale as it was taken out of `after`: of each operand 1 where it had its own, -1 where it had the other's (the
// reciprocal), 0 where it had none.
struct Scales {
  Xpos xpos;
  std::vector<int> signs;
};

// One layout that the norms allow, with what follows from it.
struct Reading {
  std::vector<PairLayout> layouts;  // of each operand
  double norm_residual = 0;
  Angles angles;
  MeasuredFrequencies frequencies;
  std::optional<Scales> scales = {};
};

// Norms and angles that a rotation leaves unexplained are below this, in bfloat16's chains too.
inline constexpr double kNotARotation = 2e-3;

// Gives the candidate the reading's pairs, and how these depart from what was asked for, operand by operand.
void SetLayout(const Reading& reading, Candidate* candidate);
std::vector<Departure> LayoutDepartures(const Asked& asked, const Reading& reading, const Evidence& sample);

std::vector<Reading> ReadPairs(const Evidence& sample, const std::vector<Numbers>& numbers,
                               const std::vector<ElementCensus>& census, const Asked& asked);

// The same where norms change as xPos's do; none where they do not.
std::vector<Reading> ReadScaledPairs(const Evidence& sample, const std::vector<Numbers>& numbers,
                                     const std::vector<ElementCensus>& census, const Asked& asked);

struct Scored {
  Candidate candidate;
  size_t reading = 0;
  double residual = 1;  // Match::residual
};
// Best first; fewer, once it is cancelled. What was asked for is among them, however badly it fits.
std::vector<Scored> FindCandidates(const Evidence& sample, const std::vector<Reading>& readings, const Asked& asked,
                                   const Limits& limits, const Cancellation& cancelled);

// A given table has no frequencies that angles could be compared with: it is tried in each direction, and at the usual
// wrong positions. None where none was asked for.
std::vector<Candidate> TableCandidates(const Evidence& sample, const std::vector<Reading>& readings,
                                       const Asked& asked);

// What was asked for, as it stands; none without settings.
std::optional<Candidate> AskedCandidate(const Asked& asked);

}  // namespace posenc::diagnose
