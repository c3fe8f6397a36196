// The verdict on a bias: the fault that explains it, and its parts that differ.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "posenc/diagnose/bias_mask.h"
#include "posenc/diagnose/bias_search.h"

namespace posenc::diagnose {

// A bias, or a part of it, and what explains it. With something asked for, one of the explanations is that.
struct ExplainedBias {
  BiasDiagnosis diagnosis;  // without verdict
  std::vector<FittedFault> changes;

  const BiasExplanation* asked() const;
};

absl::StatusOr<ExplainedBias> ExplainBias(const BiasEvidence& evidence, const std::optional<AskedBias>& asked,
                                          const BiasCall& call);

// Number of independent values that the data show: by head and distance, or by head and key.
int64_t CountValues(const BiasEvidence& evidence, const BiasStructure& structure);

// The fault that explains all of the evidence, without its parts; absent if none does, or if it has more than half as
// many free values as there are values.
std::optional<Fault> NameBiasFault(const BiasEvidence& evidence, const ExplainedBias& explained);
// The fault that gives every bit if what was asked for fits, but only within the tolerance.
std::optional<Fault> NameBetterFit(const BiasEvidence& evidence, const ExplainedBias& explained);
// The explanation, not the one asked for, that fits with the most equal cells and then the fewest numbers taken from
// the data; null if there is none.
const BiasExplanation* BestExplanation(const BiasEvidence& evidence, const ExplainedBias& explained);

// The verdict on a bias, of which `whole` are the explanations.
absl::StatusOr<Verdict> JudgeBias(const BiasEvidence& evidence, const ExplainedBias& whole,
                                  const std::optional<AskedBias>& asked, const CheckedMask& mask, const BiasCall& call);

// Batch rows, heads and queries of a bias, and all of its keys.
struct BiasBox {
  IndexRange batch_rows, heads, queries;
  bool operator==(const BiasBox&) const = default;
};
BiasEvidence Crop(const BiasEvidence& whole, const BiasBox& box);

// Boxes that may share a fault, the likeliest first. `rows`: those that have one, [B, H, Sq]; not empty.
std::vector<BiasBox> BoxesOf(const BiasEvidence& evidence, const std::vector<uint8_t>& rows);
}  // namespace posenc::diagnose
