// Sizes of tiles, for the streams of them.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"

namespace posenc::wire {

// Rows of a tile: as `asked`, else what fills about 1 MiB; of at least one row and at most all of them. Errors:
// INVALID_ARGUMENT at rows_per_tile, RESOURCE_EXHAUSTED where a tile is larger than an answer may be.
absl::StatusOr<int64_t> RowsPerTile(std::optional<int64_t> asked, int64_t rows, int64_t row_bytes,
                                    const Limits& limits);

}  // namespace posenc::wire
