// Methods that may have given a bias, from its structure.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/diagnose/bias.h"
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

// A method's bias, computed and compared with what is there.

// By the explanation's method, precision and geometry; fills in the comparison.
absl::Status Prove(const BiasEvidence& evidence, const FoundMask& mask, const Limits& limits, WorkPool& pool,
                   const Cancellation& cancelled, BiasExplanation* explanation);

// What is said of a bias: its mask and structure in words, and what the data leave open.

std::string Describe(const BiasEvidence& evidence, const BiasStructure& structure);

// Of explanations in their order, all of them.
std::vector<Undecided> Doubts(const BiasEvidence& evidence, const BiasDiagnosis& diagnosis);

// Values of one head of a bias by distance.

// The structure, which must outlive it, follows the distance.
class ByDistance {
 public:
  ByDistance(const BiasStructure& structure, size_t head)
      : values_(structure.values[head]), first_(structure.first_distance) {}

  int64_t first() const { return first_; }
  int64_t last() const { return first_ + static_cast<int64_t>(values_.size()) - 1; }
  // NaN where there is none.
  double At(int64_t distance) const {
    const int64_t n = distance - first_;
    if (n < 0 || n >= static_cast<int64_t>(values_.size())) return std::numeric_limits<double>::quiet_NaN();
    return values_[n];
  }
  // Where sign * value is greatest; of equals the first.
  int64_t Peak(double sign) const {
    int64_t peak = first_;
    for (int64_t d = first_; d <= last(); ++d) {
      if (!std::isnan(At(d)) && !(sign * At(d) <= sign * At(peak))) peak = d;
    }
    return peak;
  }
  // Where a line through the values farthest apart is 0; NaN if it has no slope.
  double Zero() const {
    int64_t low = first_, high = last();
    while (low < high && std::isnan(At(low))) ++low;
    while (low < high && std::isnan(At(high))) --high;
    const double rise = At(high) - At(low);
    return rise == 0 || low == high ? std::numeric_limits<double>::quiet_NaN()
                                    : static_cast<double>(low) - At(low) / rise * static_cast<double>(high - low);
  }

 private:
  const std::vector<double>& values_;
  const int64_t first_;
};

}  // namespace posenc::diagnose
