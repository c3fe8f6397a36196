// Rotates rows as a candidate says: by the library's own kernels, with the variant's types and roundings.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/diagnose/candidate_table.h"
#include "posenc/diagnose/prove.h"

namespace posenc::diagnose {

// The type of the table, given that of the operand.
DType TableType(const Precision& precision, DType compute);

// The operand's table; without xPos if the operand was not scaled.
absl::StatusOr<CandidateTable> TableOf(const Candidate& candidate, size_t operand, Frequencies arithmetic,
                                       const Tokens& tokens, const Limits& limits);

// Returns the block's rotated rows in after's type. `table`: TableOf() the operand.
std::vector<std::byte> ComputeRows(const Candidate& candidate, const Variant& variant, const CandidateTable& table,
                                   const Evidence& evidence, size_t operand, const Block& block);

}  // namespace posenc::diagnose
