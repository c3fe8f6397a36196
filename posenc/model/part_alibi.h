// The ALiBi settings of a part (BLOOM, MPT, Falcon).
#pragma once

#include "absl/status/statusor.h"
#include "posenc/model/part.h"

namespace posenc {

// Whether the part's bias is ALiBi.
absl::StatusOr<bool> HasAlibi(const Part& part);

absl::StatusOr<AlibiSettings> AlibiOf(Part& part);

}  // namespace posenc
