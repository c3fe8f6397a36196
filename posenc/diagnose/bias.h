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
  std::optional<Mask> mask;    // its fill does not count
  bool up_to_softmax = false;  // a constant in each row is right
  bool of_model = false;       // true: from a model; false: from settings
  bool table_found = false;    // the table was taken from a larger part of the data
};

// Cells that differ by more than the tolerance, and the rows [B, H, Sq] that have one.
struct BiasMisfits {
  int64_t cells = 0;
  std::vector<uint8_t> rows;
  // Rows that differ by a constant within the tolerance, and those that do not; only of what was asked for.
  int64_t shifted_rows = 0, other_rows = 0;
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
  BiasMisfits misfits;
  double ratio = 0;         // given / computed where the computed value is largest; 0 if none is
  int64_t free_values = 0;  // numbers that were taken from the data
  std::optional<BiasDifference> first;
  bool asked = false;

  bool fits() const { return misfits.cells == 0 && comparison.elements() > 0; }
  size_t same_as = 0;  // index of the first fully equal explanation if this is fully equal, else its own index
  std::string sentence;
};

struct BiasDiagnosis {
  Verdict verdict;
  BiasStructure structure;
  std::vector<BiasExplanation> explanations;  // best first
  std::vector<Undecided> undecided;
  std::string sentence;  // describes mask and structure
};

// Returns at most `most` explanations. Errors: those of FindStructure; INVALID_ARGUMENT or RESOURCE_EXHAUSTED if
// `asked` cannot be computed or does not fit (fields: expected..., head_start, bias.shape, query_offset).
// `tolerance_ulp`: the distance that counts as rounding. Without it, 2, and 16 for ALiBi in FP32; then a fault that
// gives every bit is the verdict.
absl::StatusOr<BiasDiagnosis> DiagnoseBias(const BiasEvidence& evidence, const std::optional<AskedBias>& asked,
                                           size_t most, const Limits& limits, WorkPool& pool,
                                           const Cancellation& cancelled,
                                           std::optional<double> tolerance_ulp = std::nullopt);

// The type in which values of `dtype` are compared: FP32 for FP64, else `dtype`.
DType ComparedAs(DType dtype);

}  // namespace posenc::diagnose
