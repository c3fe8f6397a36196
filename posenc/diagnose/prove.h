// A candidate computed and compared with what is there, bit for bit.
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

// Where the arithmetic rounds.
struct Variant {
  Precision precision;
  // Of each operand the type that is rotated: before is rounded to it, and the result to the type of after. FP64: with
  // an FP64 table, each operation rounded to FP64.
  std::vector<DType> compute;
};

struct Difference {
  Operand operand = Operand::kQuery;
  std::vector<int64_t> index;  // in the tensor
  int64_t row = 0;             // counted token by token, to find the first
  double computed = 0, given = 0;
};

struct Proof {
  Comparison comparison;
  std::optional<Difference> first;
  uint64_t digest = 0;  // of what was computed: equal digests, equal bytes
};

// A status where the candidate cannot be computed (more axes than positions have, say), or the call was cancelled.
absl::StatusOr<Proof> Prove(const Candidate& candidate, const Variant& variant, const Evidence& evidence,
                            const Limits& limits, WorkPool& pool, const Cancellation& cancelled);

// The types that operands may have been rotated in, in all combinations.
std::vector<std::vector<DType>> ComputeTypes(const Evidence& evidence);

}  // namespace posenc::diagnose
