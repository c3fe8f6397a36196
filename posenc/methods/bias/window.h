// Biases of the displacement within a window of Wh x Ww tokens, row by row: Swin v1 (arXiv:2103.14030), Swin v2's
// log-CPB (arXiv:2111.09883), BEiT (arXiv:2106.08254). A cell's bias is a row of a table, which the caller has or a
// small network of the caller's computes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/settings/settings.h"

namespace posenc {

absl::Status Complete(const SwinSettings& settings, const Limits& limits);
absl::Status Complete(const BeitSettings& settings, const Limits& limits);
absl::Status Complete(const SwinV2Settings& settings, const Limits& limits);

// How many displacements a window has: (2Wh-1)(2Ww-1).
int64_t Displacements(const Window& window);

// A cell's row of the table is its key's number less its query's and less WindowFirst. `cls`: token 0 stands for the
// whole, as BEiT's, and has the last three rows: it to a token, a token to it, it to itself.
Matrix<double> WindowKeys(const Window& window, bool cls);
// Of `count` queries from `first` on.
Matrix<double> WindowQueries(const Window& window, bool cls, int64_t first, int64_t count);
double WindowFirst(const Window& window);

// BEiT's table [H, rows] as it is read: by transformers resized on rectangular windows, its rows taken as
// [2Ww-1, 2Wh-1] where they are [2Wh-1, 2Ww-1].
BiasTable BeitTableAsRead(Frequencies arithmetic, const BeitSettings& settings, const BiasTable& table);

// Swin v2's table [H, rows], by its network.
BiasTable SwinV2Table(Frequencies arithmetic, const SwinV2Settings& settings);

}  // namespace posenc
