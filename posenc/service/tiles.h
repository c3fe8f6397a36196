// Tile sizes of streamed answers.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"

namespace posenc::wire {

// Rows per tile: `asked`, otherwise as many as fill about 1 MiB; at least one, at most all. INVALID_ARGUMENT naming
// rows_per_tile if `asked` is below 1; RESOURCE_EXHAUSTED if a tile exceeds the limit for an answer.
absl::StatusOr<int64_t> RowsPerTile(std::optional<int64_t> asked, int64_t rows, int64_t row_bytes,
                                    const Limits& limits);

}  // namespace posenc::wire
