// Rows that no explanation gives, in the words of what was measured in them.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "posenc/diagnose/rotation_call.h"

namespace posenc::diagnose {

// Returns one fault for each kind of row in `rest`: rows that are not finite, zero, or equal to before; pairs of them
// that are; rows whose pairs keep their norms but turn by other angles than `reference` computes; others. Each claim is
// true of each of its rows.
absl::StatusOr<std::vector<Fault>> DescribeRows(const RotationCall& call, const Explanation& reference,
                                                const RowSet& rest);

}  // namespace posenc::diagnose
