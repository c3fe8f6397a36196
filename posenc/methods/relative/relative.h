// The methods of relative terms behind one face: what relative_scores.h asks of any of them. (CoPE counts its positions
// by the content, and has its own way: cope.h.)
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/base/modes.h"
#include "posenc/base/work_pool.h"
#include "posenc/methods/relative/relative_tables.h"
#include "posenc/settings/relative_settings.h"

namespace posenc {

// Fills in defaults and checks the settings against the shape, but for its positions. Errors name the field from the
// method's name on.
absl::Status Complete(RelativeMethod& method, const RelativeShape& shape, const Limits& limits);

// Of a completed method:

// "shaw", "transformer_xl", ...: its field in the API.
std::string_view NameOf(const RelativeMethod& method);

// Whether k takes part beside content.
bool ReadsKeys(const RelativeMethod& method);

// Whether positions must be whole numbers.
bool IsOfWholeDistances(const RelativeMethod& method);

// The factor of all products.
double ScaleOf(const RelativeMethod& method, int64_t head_dim);

// What depends on positions: outside a table, or more rows than the limit.
absl::Status CheckPositions(const RelativeMethod& method, const RelativeShape& shape, const Limits& limits);

absl::StatusOr<RelativeTables> MakeTables(const RelativeMethod& method, const RelativeShape& shape,
                                          Frequencies arithmetic, WorkPool& pool, const Cancellation& cancelled);

}  // namespace posenc
