// Sets of rows by their equal bits, for rows in which two explanations are both within the tolerance.
#pragma once

#include "posenc/diagnose/rotation_call.h"

namespace posenc::diagnose {

// False for wide types: their equal bits say nothing, because phases round otherwise.
bool BitsCount(const RotationCall& call);

// The elements of these rows that the explanation does not give bit for bit.
uint64_t CountUnequal(const Explanation& explanation, const RowSet& rows);

// The rows without the heads in which the explanation misses at least a bit of each row, if there are heads in which it
// gives nearly all bits: it is only near what happened in the others.
RowSet WithBits(const RotationCall& call, const Explanation& explanation, RowSet rows);

// The rows, and those of other heads in which the reference is within the tolerance, but the explanation gives most of
// the bits that the reference does not, in the same tokens.
RowSet Widened(const RotationCall& call, const Explanation& reference, const Explanation& explanation, RowSet rows);

// The heads of batch rows in which clearly more elements are not equal than in all others; empty if there are none.
RowSet UnequalHeads(const RotationCall& call, const Explanation& reference);

}  // namespace posenc::diagnose
