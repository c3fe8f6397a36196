// The formulas of the biases, a file each. bias.h is what the rest of the library asks of any of them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/exact/arithmetic.h"
#include "posenc/settings/settings.h"

namespace posenc {

// ALiBi (arXiv:2108.12409): slopes a head. What the forms do with them is generate_bias.h's business.

// Fills in defaults; INVALID_ARGUMENT naming the field that is missing, out of range, or not read.
absl::Status Complete(AlibiSettings& settings, const Limits& limits);

// Slopes of all heads, of completed settings: [H], or [B, H] where given so; float32 values. Under kExact the formula
// rounded once to float32; else the chain of the model's own code (BLOOM's for a rule, MPT's for kMpt), every step
// rounded.
Matrix<double> AlibiSlopes(Frequencies arithmetic, const AlibiSettings& settings);

// Whether every query has the same row.
inline bool IsKeyOnly(AlibiForm form) { return form == AlibiForm::kBloom || form == AlibiForm::kMpt; }

// T5's buckets of the distance (arXiv:1910.10683): near distances have one each, farther ones share them by logarithm.

// Fills in defaults; INVALID_ARGUMENT naming the field that is missing or out of range.
absl::Status Complete(T5Settings& settings);

// Buckets of the distances key - query = first, first + 1, ..., of completed settings; magnitudes below 2^31. Under
// kExact each is decided over the integers.
std::vector<int32_t> T5Buckets(Frequencies arithmetic, const T5Settings& settings, int64_t first, int64_t count);

// KERPLE (arXiv:2205.09921): kernels of the distance with two learned parameters a head.

// Clamps the parameters as the model does; INVALID_ARGUMENT naming the field that is missing or not finite.
absl::Status Complete(KerpleSettings& settings, const Limits& limits);

// For |distance| = first, first + 1, ...: the values of all heads.
std::vector<float> KerpleValues(Frequencies arithmetic, const KerpleSettings& settings, int64_t first, int64_t count);

// Sandwich (arXiv:2212.10356): the inner products of sinusoidal encodings, divided by a ratio a head.

// Fills in defaults; INVALID_ARGUMENT naming the field that is missing or out of range.
absl::Status Complete(SandwichSettings& settings, const Limits& limits);

// For |distance| = first, first + 1, ...: the values of all heads, of completed settings.
std::vector<float> SandwichValues(Frequencies arithmetic, const SandwichSettings& settings, int64_t first,
                                  int64_t count);

// Biases of the displacement within a window of Wh x Ww tokens, row by row: Swin v1 (arXiv:2103.14030), Swin v2's
// log-CPB (arXiv:2111.09883), BEiT (arXiv:2106.08254). A cell's bias is a row of a table, which the caller has or a
// small network of the caller's computes.

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
