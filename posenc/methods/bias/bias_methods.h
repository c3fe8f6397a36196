// Formulas of the bias methods, one .cc file per method. bias.h is their common interface.
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

// ALiBi (arXiv:2108.12409): slopes per head. generate_bias.h applies them as AlibiForm requires.

// Fills in defaults. Returns INVALID_ARGUMENT naming the field that is missing, out of range, or not read.
absl::Status Complete(AlibiSettings& settings, const Limits& limits);

// Returns the slopes of all heads for completed settings: [H], or [B, H] if given so; float32 values. Under kExact the
// formula is rounded once to float32. Other arithmetics follow the model's own code (BLOOM's for a rule, MPT's for
// kMpt) and round every step.
Matrix<double> AlibiSlopes(Frequencies arithmetic, const AlibiSettings& settings);

// True if every query has the same row of biases.
inline bool IsKeyOnly(AlibiForm form) { return form == AlibiForm::kBloom || form == AlibiForm::kMpt; }

// T5's distance buckets (arXiv:1910.10683): each near distance has its own bucket, farther ones share buckets on a log
// scale.

// Fills in defaults. Returns INVALID_ARGUMENT naming the field that is missing or out of range.
absl::Status Complete(T5Settings& settings);

// Returns the buckets of the distances key - query = first, first + 1, ... for completed settings. Magnitudes must be
// below 2^31. Under kExact every bucket is exact: integer arithmetic decides ties.
std::vector<int32_t> T5Buckets(Frequencies arithmetic, const T5Settings& settings, int64_t first, int64_t count);

// KERPLE (arXiv:2205.09921): kernels of the distance with two learned parameters per head.

// Clamps the parameters as the model does. Returns INVALID_ARGUMENT naming the field that is missing or not finite.
absl::Status Complete(KerpleSettings& settings, const Limits& limits);

// Returns the values of all heads for |distance| = first, first + 1, ...: [count, H]. Requires completed settings.
std::vector<float> KerpleValues(Frequencies arithmetic, const KerpleSettings& settings, int64_t first, int64_t count);

// Sandwich (arXiv:2212.10356): inner products of sinusoidal encodings, divided by a ratio per head.

// Fills in defaults. Returns INVALID_ARGUMENT naming the field that is missing or out of range.
absl::Status Complete(SandwichSettings& settings, const Limits& limits);

// Returns the values of all heads for |distance| = first, first + 1, ...: [count, H]. Requires completed settings.
std::vector<float> SandwichValues(Frequencies arithmetic, const SandwichSettings& settings, int64_t first,
                                  int64_t count);

// Biases by displacement within a window of Wh x Ww tokens in row-major order: Swin v1 (arXiv:2103.14030), Swin v2's
// log-CPB (arXiv:2111.09883), BEiT (arXiv:2106.08254). A cell's bias is a row of a table. The caller gives the table,
// or a small network that computes it.

absl::Status Complete(const SwinSettings& settings, const Limits& limits);
absl::Status Complete(const BeitSettings& settings, const Limits& limits);
absl::Status Complete(const SwinV2Settings& settings, const Limits& limits);

// Number of displacements in a window: (2Wh-1)(2Ww-1).
int64_t Displacements(const Window& window);

// Returns the keys' numbers. A cell's table row is key number - query number - WindowFirst(). `cls`: token 0 is BEiT's
// cls token. The last three rows are its own: cls query to token, token to cls key, cls to itself.
Matrix<double> WindowKeys(const Window& window, bool cls);
// Returns the numbers of `count` queries from token `first` on.
Matrix<double> WindowQueries(const Window& window, bool cls, int64_t first, int64_t count);
double WindowFirst(const Window& window);

// Returns BEiT's table [H, rows] as the model reads it. For rectangular windows transformers resizes it: it reads the
// rows as [2Ww-1, 2Wh-1] although they are [2Wh-1, 2Ww-1].
BiasTable BeitTableAsRead(Frequencies arithmetic, const BeitSettings& settings, const BiasTable& table);

// Computes Swin v2's table [H, rows] with its network.
BiasTable SwinV2Table(Frequencies arithmetic, const SwinV2Settings& settings);

}  // namespace posenc
