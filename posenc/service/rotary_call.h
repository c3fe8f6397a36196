// Prepares the request of ApplyRotary or a stream's header; they differ only in where the tensors' bytes are.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/rotary/apply_rotary.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

// Location of the tensors' bytes.
enum class Bytes { kInRequest, kInChunks };

struct PreparedRotary {
  TensorShape q, k;                                      // k: [0] if absent
  std::shared_ptr<const RotaryApplication> application;  // null: a layer that does not rotate
  v1::AnswerInfo info;
};

absl::StatusOr<PreparedRotary> PrepareRotary(const Reader& reader, const v1::ApplyRotaryRequest& request, Bytes bytes);

}  // namespace posenc::wire
