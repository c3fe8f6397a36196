// A response as one contiguous buffer, the tensors' data computed in place.
//
//   | other fields  tag len { dtype shape  15 len | data of output 0 | tag len { ... | data of output 1 |
//                                                 ^ data_offset(0)                   ^ data_offset(1)
//
// It parses to the response with the data set.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

// A tensor of an answer whose data are computed after its message has been laid out.
struct Output {
  v1::Tensor* tensor;  // a direct field of the response, with dtype and shape set and data empty
  size_t bytes;

  // Where they belong, if not into the answer; else null.
  const v1::Region* region() const { return tensor != nullptr && tensor->has_region() ? &tensor->region() : nullptr; }
};

class Answer {
 public:
  // Lays out `response`, whose outputs hold all but their data. It is left as it was and not referred to afterwards.
  // RESOURCE_EXHAUSTED when the message would be too large for gRPC, whose sizes are ints.
  static absl::StatusOr<Answer> LayOut(google::protobuf::Message* response, absl::Span<const Output> outputs);

  // The same of a rotated chunk of `bytes` bytes, which `chunk` holds all about but them.
  static Answer OfChunk(const v1::RotaryChunk& chunk, size_t bytes);

  size_t size() const { return size_; }
  // Where the data of output n belong, unless they are shared.
  size_t data_offset(size_t n) const { return data_offsets_[n]; }
  // Writes all of buffer[0 .. size()) but the data.
  void WriteHeaders(std::byte* buffer) const;

 private:
  std::vector<std::string> headers_;  // what stands before each output's data; with no outputs one, the message
  std::vector<size_t> data_offsets_;
  size_t size_ = 0;
};

}  // namespace posenc::wire
