// Diagnosis of an attention bias: measures its mask and structure, then computes the few methods that agree with them
// and compares them bit for bit, without the masked cells.
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

// The bias that the caller expects.
struct AskedBias {
  BiasMethod method;  // T5 without a table: the table is taken from the data
  Precision precision;
  std::optional<int64_t> head_start;
  bool of_model = false;  // true: from a model; false: from settings
};

struct BiasDifference {
  Cell cell;
  double computed, given;
};

struct BiasExplanation {
  BiasMethod method;
  Precision precision;
  BiasGeometry geometry;
  Comparison comparison;  // unmasked cells only
  std::optional<BiasDifference> first;
  bool asked = false;
  size_t same_as = 0;  // index of the first fully equal explanation if this is fully equal, else its own index
  std::string sentence;
};

struct BiasDiagnosis {
  BiasStructure structure;
  std::vector<BiasExplanation> explanations;  // best first
  std::vector<Undecided> undecided;
  std::string sentence;  // describes mask and structure
};

// Returns at most `most` explanations. Errors: those of FindStructure; INVALID_ARGUMENT or RESOURCE_EXHAUSTED if
// `asked` cannot be computed or does not fit (fields: expected..., head_start, bias.shape, query_offset).
absl::StatusOr<BiasDiagnosis> DiagnoseBias(const BiasEvidence& evidence, const std::optional<AskedBias>& asked,
                                           size_t most, const Limits& limits, WorkPool& pool,
                                           const Cancellation& cancelled);

// The type in which values of `dtype` are compared: FP32 for FP64, else `dtype`.
DType ComparedAs(DType dtype);

}  // namespace posenc::diagnose
