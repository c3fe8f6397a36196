// Which method gave an attention bias: its mask and structure are measured, the few methods that agree with them are
// computed and compared bit for bit, masked cells left out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/diagnose/bias_structure.h"
#include "posenc/diagnose/comparison.h"
#include "posenc/diagnose/diagnose.h"
#include "posenc/settings/settings.h"

namespace posenc::diagnose {

// What should have been applied.
struct AskedBias {
  BiasMethod method;  // of T5 without a table only the buckets count
  Precision precision;
  std::optional<int64_t> head_start;
  bool of_model = false;  // or of settings
};

struct BiasDifference {
  Cell cell;
  double computed, given;
};

struct BiasExplanation {
  BiasMethod method;
  Precision precision;
  BiasGeometry geometry;
  Comparison comparison;  // of the cells that are not masked
  std::optional<BiasDifference> first;
  bool asked = false;
  size_t same_as = 0;  // index of the first that is all equal, if this is; else its own
  std::string sentence;
};

struct BiasDiagnosis {
  BiasStructure structure;
  std::vector<BiasExplanation> explanations;  // best first
  std::vector<Undecided> undecided;
  std::string sentence;  // of mask and structure
};

// At most `most` explanations. Errors are FindStructure's, and those of what was asked for, whose fields are named as
// BiasGeneration names them.
absl::StatusOr<BiasDiagnosis> DiagnoseBias(const BiasEvidence& evidence, const std::optional<AskedBias>& asked,
                                           size_t most, const Limits& limits, WorkPool& pool,
                                           const Cancellation& cancelled);

// FP64 is compared as FP32.
DType ComparedAs(DType dtype);

}  // namespace posenc::diagnose
