// Cosines and sines of a range of tokens, in the format that PairRotation reads.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "posenc/base/line_allocator.h"
#include "posenc/base/shared_cache.h"
#include "posenc/rotary/table_rows.h"

namespace posenc {

// Immutable and thread-safe.
class SlabTable {
 public:
  // Entries are rounded to `type`, then widened to float32 if `type` is narrower. `operand` matters if rows differ by
  // it. `scales`: rows of the tensor are multiplied by factors().
  SlabTable(const TableRows& rows, int64_t token, int64_t count, DType type, Operand operand, bool scales);

  DType widened() const { return widened_; }
  const void* cos() const { return bytes_.data(); }
  const void* sin() const { return bytes_.data() + bytes_.size() / 2; }  // cache-line aligned, too
  // Factors of q by token; empty unless `scales`.
  const std::vector<float>& factors() const { return factors_; }
  size_t bytes() const { return sizeof(*this) + bytes_.size() + factors_.size() * sizeof(float); }

 private:
  DType widened_;
  LineVector<std::byte> bytes_;
  std::vector<float> factors_;
};

// Process-wide cache of tables, keyed by everything that determines them: a model's layers use the same tables.
SharedCache<SlabTable>& TableCache();

// Uses the cache if a lookup is faster than computing and all of the call's tables take at most a quarter of it.
std::shared_ptr<const SlabTable> TableOf(const TableRows& rows, int64_t token, int64_t count, DType type,
                                         Operand operand, bool scales);

}  // namespace posenc
