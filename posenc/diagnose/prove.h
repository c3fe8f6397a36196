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
#include "posenc/diagnose/parts.h"

namespace posenc::diagnose {

// A choice of the roundings in the arithmetic.
struct Variant {
  Precision precision;
  // The type in which each operand is rotated: before is rounded to it, and the result to the type of after. FP64 uses
  // an FP64 table and rounds each operation to FP64.
  std::vector<DType> compute;
};

// The distance between a computed and a given element that counts as rounding: `ulp` units in the last place of the
// given type at the norm of the element's pair, plus `of_angle` times the pair's angle times that norm. A pair whose
// angle is so large that the second term is half of the norm or more is no evidence: any angle would nearly do.
struct Tolerance {
  double ulp = 2;               // FP16 and BF16, of which the nearest variant rounds like most systems
  double wide_ulp = 4;          // FP32 and FP64: each table entry, product and sum may be rounded elsewhere
  double of_angle = 0x1.4p-22;  // 5 roundings to float32: frequency (4) and product
  // Allows a few elements of a row in which an entry of a narrow table, or a rounding fault's angle, was rounded to the
  // other side.
  bool flips = true;
};

// Elements beyond the tolerance. Head rows are indexed by token * heads + head.
struct Misfits {
  int64_t elements = 0;
  int64_t flips = 0;                             // elements that are not beyond it thanks to Tolerance::flips only
  RowSet rows;                                   // those with an element that is beyond
  RowSet unequal;                                // number of elements that differ at all, at most 255
  std::vector<std::vector<uint8_t>> within_row;  // per operand: 1 if the element is beyond in some row
  // Rows with an element that is a number where NaN was computed, which is not beyond the tolerance: nobody knows what
  // to expect. Empty if there are none.
  RowSet undefined = {};
  // Rows beyond the tolerance only because too few of their pairs are evidence. Empty if there are none.
  RowSet unclear = {};

  bool none() const { return elements == 0; }
};

struct Difference {
  Operand operand = Operand::kQuery;
  std::vector<int64_t> index;  // element index in the tensor
  int64_t row = 0;             // index of the head row, to find the first
  double computed = 0, given = 0;
};

struct Proof {
  Comparison comparison;
  std::optional<Difference> first;
  uint64_t digest = 0;  // hash of the computed bytes: equal digests, equal bytes
  std::optional<Misfits> misfits;
};

// Finds misfits if there is a tolerance; in the rows of `only` if it is given. Returns an error if the candidate cannot
// be computed (e.g. more axes than the positions have), or the call was cancelled.
absl::StatusOr<Proof> Prove(const Candidate& candidate, const Variant& variant, const Evidence& evidence,
                            const Limits& limits, WorkPool& pool, const Cancellation& cancelled,
                            const Tolerance* tolerance = nullptr, const RowSet* only = nullptr);

// All combinations of types in which the operands may have been rotated.
std::vector<std::vector<DType>> ComputeTypes(const Evidence& evidence);

}  // namespace posenc::diagnose
