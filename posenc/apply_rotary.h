// Rotating q and k.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/statusor.h"
#include "posenc/byte_source.h"
#include "posenc/limits.h"
#include "posenc/spec.h"
#include "posenc/table_rows.h"
#include "posenc/tensor.h"
#include "posenc/work_pool.h"

namespace posenc {

struct RotaryOperand {
  TensorShape tensor;  // FP32, FP16 or BF16; axes as the layout says
  int64_t rotary_offset = 0;
};

struct ApplyRotary {
  Positions positions;
  Layout layout = Layout::kBSHD;
  Direction direction = Direction::kForward;
  Precision precision;
  RotaryOperand q;
  std::optional<RotaryOperand> k;
};

// A checked call. Immutable: it can run on any thread, any number of times.
class RotaryApplication {
 public:
  static absl::StatusOr<RotaryApplication> Create(const Rotary& rotary, ApplyRotary call, const Limits& limits);

  const TableRows& rows() const { return rows_; }

  // x may be y's own bytes (in place), else must not overlap them. Null where there is no such operand.
  struct Buffers {
    const ByteSource* x = nullptr;
    std::byte* y = nullptr;
  };
  absl::Status Run(Buffers q, Buffers k, WorkPool& pool, const Cancellation& cancelled) const;

 private:
  RotaryApplication(ApplyRotary call, TableRows rows) : call_(std::move(call)), rows_(std::move(rows)) {}

  ApplyRotary call_;
  TableRows rows_;
  Pairing input_pairing_ = Pairing::kInterleaved;
  Pairing output_pairing_ = Pairing::kInterleaved;
};

}  // namespace posenc
