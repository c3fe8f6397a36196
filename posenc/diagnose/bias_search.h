// Computes what was expected of a bias, and candidates, where they fit the data best.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/diagnose/bias_candidates.h"

namespace posenc::diagnose {

class BiasSearch {
 public:
  // `evidence` and `structure` must outlive it.
  BiasSearch(const BiasEvidence& evidence, const BiasStructure& structure, const BiasCall& call)
      : evidence_(evidence), structure_(structure), call_(call) {}

  // Proves what was asked for, at the offset that fits best of those at which the first query may stand.
  absl::StatusOr<BiasExplanation> ProveAsked(AskedBias asked) const;
  // Proves what was asked for, with the first query at `offset`.
  absl::StatusOr<BiasExplanation> ProveAskedAt(const AskedBias& completed, int64_t offset) const;
  // Proves what was asked for at other offsets. Returns the one that fits best; absent if none does.
  absl::StatusOr<std::optional<BiasExplanation>> ProveElsewhere(const AskedBias& completed) const;
  // Returns the first variant that gives the same bytes, else the nearest one; absent if none can be computed.
  absl::StatusOr<std::optional<BiasExplanation>> ProveCandidate(const BiasCandidate& candidate) const;

 private:
  absl::Status CheckFits(const AskedBias& asked) const;
  // Offsets at which the first query may stand, the likeliest first.
  std::vector<int64_t> RightOffsets(const AskedBias& completed) const;
  // Other offsets, at which a port may have put the first query. Empty if the method has no positions.
  std::vector<int64_t> OtherOffsets(const AskedBias& completed) const;
  absl::Status Prove(BiasExplanation* explanation) const;
  BiasGeometry Geometry(int64_t offset, int64_t head_start) const;

  const BiasEvidence& evidence_;
  const BiasStructure& structure_;
  const BiasCall& call_;
};

// True if the method cannot be computed for this bias; false if the call was cancelled or failed otherwise.
bool CannotBe(const absl::Status& status);

// Faults that turn the expected bias into the given one. It was transposed, negated, multiplied or divided; its queries
// have other positions; its table was read at other indices or in the other order of its axes; its distances or values
// were clipped.
struct BiasChanges {
  std::vector<FittedFault> faults;
  std::optional<BiasExplanation> elsewhere;  // the expected bias, with its queries elsewhere
};
// `expected`: what was asked for, which does not fit.
absl::StatusOr<BiasChanges> ProveChanges(const BiasEvidence& evidence, const BiasStructure& structure,
                                         const AskedBias& asked, const BiasExplanation& expected, const BiasCall& call);

}  // namespace posenc::diagnose
