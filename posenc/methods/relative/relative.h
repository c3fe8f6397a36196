// Common interface of the relative-term methods, used by relative_scores.h. CoPE counts positions by content, not by
// distance: see AddCopeRow in relative_methods.h.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/base/work_pool.h"
#include "posenc/methods/relative/relative_tables.h"
#include "posenc/settings/relative_settings.h"

namespace posenc {

// Fills in defaults and checks the settings against the shape, except its positions. Errors name the field with the
// method's name in front.
absl::Status Complete(RelativeMethod& method, const RelativeShape& shape, const Limits& limits);

// The functions below require a completed method.

// Returns the method's field name in the API: "shaw", "transformer_xl", ...
std::string_view NameOf(const RelativeMethod& method);

// True if the method's own terms read k (the content term always does).
bool ReadsKeys(const RelativeMethod& method);

// True if positions must be whole numbers.
bool IsOfWholeDistances(const RelativeMethod& method);

// Returns the factor of all products: 1 / sqrt(head_dim * number of terms); Inkling's is 1.
double ScaleOf(const RelativeMethod& method, int64_t head_dim);

// Checks the shape's positions. Returns an error if they lie outside a table or need more rows than the limit.
absl::Status CheckPositions(const RelativeMethod& method, const RelativeShape& shape, const Limits& limits);

absl::StatusOr<RelativeTables> MakeTables(const RelativeMethod& method, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

}  // namespace posenc
