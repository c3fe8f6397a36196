// Faults of positions: rows that the expected frequencies, or other usual ones, explain at other positions.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "posenc/diagnose/options.h"
#include "posenc/diagnose/rotation_call.h"

namespace posenc::diagnose {

// An explanation of some rows, compared with all elements, and the rows of those asked about that it explains.
struct Placement {
  Explanation explanation;
  RowSet rows;
  std::vector<MeasuredPositions> positions;  // by axis; empty if they are as stated
  bool at_its_head = false;                  // one head's, whose tokens are all at the position of the head's index
};

// Measures the position of each token of `rest` under the frequencies of the option, in the reference's layout and
// variant, and computes what follows. Heads are pooled if they agree. Empty if no position gives the angles.
absl::StatusOr<std::vector<Placement>> ExplainByPositions(const RotationCall& call, const Explanation& reference,
                                                          const Option& option, const RowSet& rest);

}  // namespace posenc::diagnose
