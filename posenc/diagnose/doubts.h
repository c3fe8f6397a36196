// What speaks against the first explanation, or against there being only one.
#pragma once

#include <vector>

#include "posenc/diagnose/diagnose.h"
#include "posenc/diagnose/search.h"

namespace posenc::diagnose {

struct Findings {
  const Evidence& sample;
  const std::vector<ElementCensus>& census;  // of each operand
  const std::vector<Reading>& readings;      // none: nothing changed
  const Reading* reading;                    // that of the first explanation; null: there is none
  const std::vector<Explanation>& explanations;
  bool explained;  // by the first of them
};

std::vector<Undecided> Doubts(const Findings& findings, const Limits& limits);

}  // namespace posenc::diagnose
