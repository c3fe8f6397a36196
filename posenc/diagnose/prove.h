// Proof of a candidate: computes it and compares it with the data bit for bit.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/work_pool.h"
#include "posenc/diagnose/candidate.h"
#include "posenc/diagnose/comparison.h"
#include "posenc/diagnose/evidence.h"

namespace posenc::diagnose {

// A choice of the roundings in the arithmetic.
struct Variant {
  Precision precision;
  // The type in which each operand is rotated: before is rounded to it, and the result to the type of after. FP64 uses
  // an FP64 table and rounds each operation to FP64.
  std::vector<DType> compute;
};

struct Difference {
  Operand operand = Operand::kQuery;
  std::vector<int64_t> index;  // element index in the tensor
  int64_t row = 0;             // token index, to find the first
  double computed = 0, given = 0;
};

struct Proof {
  Comparison comparison;
  std::optional<Difference> first;
  uint64_t digest = 0;  // hash of the computed bytes: equal digests, equal bytes
};

// Returns an error if the candidate cannot be computed (e.g. more axes than the positions have), or the call was
// cancelled.
absl::StatusOr<Proof> Prove(const Candidate& candidate, const Variant& variant, const Evidence& evidence,
                            const Limits& limits, WorkPool& pool, const Cancellation& cancelled);

// All combinations of types in which the operands may have been rotated.
std::vector<std::vector<DType>> ComputeTypes(const Evidence& evidence);

}  // namespace posenc::diagnose
