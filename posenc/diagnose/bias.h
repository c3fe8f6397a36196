// Which method gave an attention bias: its mask and structure are measured, the few methods that agree with them are
// computed and compared bit for bit, masked cells left out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/diagnose/bias_structure.h"
#include "posenc/diagnose/comparison.h"
#include "posenc/methods/bias.h"
#include "posenc/spec.h"

namespace posenc::diagnose {

struct BiasExplanation {
  BiasMethod method;
  int64_t query_offset = 0;
  Precision precision;
  Comparison comparison;  // of the cells that are not masked
  std::optional<Cell> first_differ;
  std::string sentence;
};

struct BiasDiagnosis {
  BiasStructure structure;
  std::vector<BiasExplanation> explanations;  // best first; none: no method of those that are tried
  std::string sentence;                       // of mask and structure
};

// `asked`: what a model's config asks for; compared first. Errors are FindStructure's.
absl::StatusOr<BiasDiagnosis> DiagnoseBias(const BiasEvidence& evidence, const std::optional<BiasMethod>& asked,
                                           const Limits& limits, WorkPool& pool, const Cancellation& cancelled);

}  // namespace posenc::diagnose
