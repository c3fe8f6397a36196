// Methods that may have given a bias, from its structure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/diagnose/bias_structure.h"
#include "posenc/settings/settings.h"

namespace posenc::diagnose {

// Another way to compute a candidate, tried only if those before it do not give the same bytes.
struct BiasVariant {
  BiasMethod method;
  Precision precision;
  std::string suffix;  // of the sentence
};

struct BiasCandidate {
  std::vector<BiasVariant> variants;
  int64_t head_start = 0;  // of the method's heads
  int64_t query_offset = 0;
  std::string sentence;
};

// The first query's positions that the caller, the mask or habit suggest, each once.
std::vector<int64_t> UsualOffsets(const BiasEvidence& evidence, const BiasStructure& structure);
// And those at which values that fall or rise with the distance begin.
std::vector<int64_t> QueryOffsets(const BiasEvidence& evidence, const BiasStructure& structure);
// What a sentence says of it; nothing where the caller did, or it is 0 as in any square bias.
std::string Place(const BiasEvidence& evidence, int64_t offset);

// ALiBi: where values are linear in the distance, or in the key's position. Slopes by rule, and as they are.
std::vector<BiasCandidate> AlibiCandidates(const BiasEvidence& evidence, const BiasStructure& structure);
// T5: where distances share values as one of its settings has it; with the table that follows. `asked`: settings to try
// beside the usual ones.
absl::StatusOr<std::vector<BiasCandidate>> T5Candidates(const BiasEvidence& evidence, const BiasStructure& structure,
                                                        const T5Settings* asked, const Cancellation& cancelled);
// The table of completed settings: of each bucket the value that is there first, 0 where there is none.
absl::StatusOr<BiasTable> FirstValues(const BiasEvidence& evidence, const FoundMask& mask, Frequencies arithmetic,
                                      const T5Settings& settings, int64_t query_offset, const Cancellation& cancelled);

}  // namespace posenc::diagnose
