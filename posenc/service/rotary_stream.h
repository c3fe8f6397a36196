// Steps shared by ApplyRotary and StreamApplyRotary, and StreamApplyRotary without its transport: prepares the header
// once, then rotates ranges of q and k.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/base/byte_source.h"
#include "posenc/base/limits.h"
#include "posenc/base/work_pool.h"
#include "posenc/mapping/read.h"
#include "posenc/rotary/apply_rotary.h"
#include "posenc/v1/service.pb.h"
#include "posenc/wire/payloads.h"

namespace posenc::wire {

// Location of the tensors' bytes.
enum class Bytes { kInRequest, kInChunks };

struct PreparedRotary {
  TensorShape q, k;                                      // k: [0] if absent
  std::shared_ptr<const RotaryApplication> application;  // null: a layer that does not rotate
  v1::AnswerInfo info;
};

absl::StatusOr<PreparedRotary> PrepareRotary(const Reader& reader, const v1::ApplyRotaryRequest& request, Bytes bytes);

// Immutable and thread-safe. Needs neither the header nor its payloads after Create.
class RotaryStream {
 public:
  // Errors name the field from "header" on.
  static absl::StatusOr<RotaryStream> Create(const v1::ApplyRotaryRequest& header, const Payloads& payloads,
                                             const Limits& limits);

  const v1::AnswerInfo& info() const { return prepared_.info; }

  // Bytes of the operand; 0 if absent.
  int64_t Size(v1::Operand operand) const { return operand == v1::OPERAND_QUERY ? q_size_ : k_size_; }
  int64_t RowSize(v1::Operand operand) const;

  // Returns INVALID_ARGUMENT, named from "chunk" on, unless the chunk is one or more whole head rows of an operand.
  absl::Status Check(const v1::RotaryChunk& chunk, size_t size) const;

  // Rotates `size` bytes of the operand from byte `begin` on, which Check() has accepted. x and y begin at that byte.
  absl::Status Rotate(v1::Operand operand, int64_t begin, int64_t size, const ByteSource& x, std::byte* y,
                      WorkPool& pool, const Cancellation& cancelled) const;

 private:
  PreparedRotary prepared_;
  int64_t q_size_ = 0, k_size_ = 0;
};

}  // namespace posenc::wire
