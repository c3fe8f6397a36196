// Reasons to doubt the first explanation, or that it is the only one.
#pragma once

#include <vector>

#include "posenc/diagnose/diagnose.h"
#include "posenc/diagnose/search.h"

namespace posenc::diagnose {

struct Findings {
  const Evidence& sample;
  const std::vector<ElementCensus>& census;  // one per operand
  const std::vector<Reading>& readings;      // empty: nothing changed
  const Reading* reading;                    // reading of the first explanation; null if there is none
  const std::vector<Explanation>& explanations;
  bool explained;      // the first explanation fits the data
  int64_t not_finite;  // head rows of all the evidence that have an element that is not finite
};

std::vector<Undecided> Doubts(const Findings& findings);

}  // namespace posenc::diagnose
