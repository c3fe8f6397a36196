#include "posenc/service/tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "posenc/base/status.h"
#include "posenc/base/tensor.h"

namespace posenc::wire {

absl::StatusOr<int64_t> RowsPerTile(std::optional<int64_t> asked, int64_t rows, int64_t row_bytes,
                                    const Limits& limits) {
  if (asked && *asked < 1) {
    return InvalidArgument("OUT_OF_RANGE", "rows_per_tile", fmt::format("{}", *asked), "must be at least 1");
  }
  const int64_t tile_bytes = std::min(int64_t{1} << 20, limits.max_output_bytes);
  const int64_t fill = std::max<int64_t>(tile_bytes / std::max<int64_t>(row_bytes, 1), 1);
  const int64_t tile = std::clamp<int64_t>(asked.value_or(row_bytes == 0 ? rows : fill), 1, std::max<int64_t>(rows, 1));
  int64_t bytes;
  if (__builtin_mul_overflow(std::min(tile, rows), row_bytes, &bytes)) bytes = std::numeric_limits<int64_t>::max();
  POSENC_RETURN_IF_ERROR(CheckOutput(bytes, limits));
  return tile;
}

}  // namespace posenc::wire
