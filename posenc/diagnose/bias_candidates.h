// Methods that may have given a bias, from its structure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "posenc/diagnose/bias_structure.h"
#include "posenc/spec.h"

namespace posenc::diagnose {

struct BiasCandidate {
  BiasMethod method;
  int64_t query_offset = 0;
  std::string sentence;
};

// ALiBi: where values are linear in the distance, or in the key's position. Slopes by rule, and as they are.
std::vector<BiasCandidate> AlibiCandidates(const BiasEvidence& evidence, const BiasStructure& structure);
// T5: where distances share values as one of its settings has it; with the table that follows.
std::vector<BiasCandidate> T5Candidates(const BiasEvidence& evidence, const BiasStructure& structure);

}  // namespace posenc::diagnose
