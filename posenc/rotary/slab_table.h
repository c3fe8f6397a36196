// Cosines and sines of some tokens, in the form in which RotatePairs takes them.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "posenc/base/line_allocator.h"
#include "posenc/base/shared_cache.h"
#include "posenc/rotary/table_rows.h"

namespace posenc {

// Immutable.
class SlabTable {
 public:
  // Entries of `type`, widened to float32 where that is narrower. `operand`: for whom, where that makes a difference.
  SlabTable(const TableRows& rows, int64_t token, int64_t count, DType type, Operand operand);

  DType widened() const { return widened_; }
  const void* cos() const { return bytes_.data(); }
  const void* sin() const { return bytes_.data() + bytes_.size() / 2; }  // where a line begins, too
  size_t bytes() const { return sizeof(*this) + bytes_.size(); }

 private:
  DType widened_;
  LineVector<std::byte> bytes_;
};

// The tables of this process, by all that determines them: the layers of a model ask for the same.
SharedCache<SlabTable>& TableCache();

// From the cache, where finding it takes less time than computing it, and all of the call's leave room for others'.
std::shared_ptr<const SlabTable> TableOf(const TableRows& rows, int64_t token, int64_t count, DType type,
                                         Operand operand);

}  // namespace posenc
