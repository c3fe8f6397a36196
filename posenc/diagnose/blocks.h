// Work on all rows of the evidence, in blocks and on several threads.
#pragma once

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "posenc/base/work_pool.h"
#include "posenc/diagnose/evidence.h"
#include "posenc/diagnose/parts.h"

namespace posenc::diagnose {

// Calls body(block, first) for blocks that together cover the rows: all heads of some tokens, or some heads of one
// token. `first`: the index of the block's first head row; the others follow. `element_bytes`: what a body holds in
// memory for each element.
absl::Status ForEachBlock(const Rows& rows, WorkPool& pool, const Cancellation& cancelled, int64_t element_bytes,
                          absl::FunctionRef<void(const Block& block, int64_t first)> body);

// Counts the head rows that have an element, before or after, that is infinite or NaN.
absl::StatusOr<int64_t> CountNotFinite(const Evidence& evidence, WorkPool& pool, const Cancellation& cancelled);

// Head rows of each operand in which after is not before, rounded to after's type.
absl::StatusOr<RowSet> ChangedRows(const Evidence& evidence, WorkPool& pool, const Cancellation& cancelled);

}  // namespace posenc::diagnose
