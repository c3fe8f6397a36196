// Layout of a response in one contiguous buffer, into which the tensors' data are computed in place.
//
//   | other fields  tag len { dtype shape  15 len | data of output 0 | tag len { ... | data of output 1 |
//                                                 ^ data_offset(0)                   ^ data_offset(1)
//
// The buffer parses to the response with its data set.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

// A tensor of an answer whose data are computed after the message layout is fixed.
struct Output {
  v1::Tensor* tensor;  // a direct field of the response, with dtype and shape set and data empty
  size_t bytes;

  // Returns the shared-memory region to write the data to; null if they go into the answer.
  const v1::Region* region() const { return tensor != nullptr && tensor->has_region() ? &tensor->region() : nullptr; }
};

class Answer {
 public:
  // Lays out `response`, whose outputs have no data yet. `response` is unchanged afterwards and not retained.
  // RESOURCE_EXHAUSTED if the message is too large for gRPC, whose sizes are ints.
  static absl::StatusOr<Answer> LayOut(google::protobuf::Message* response, absl::Span<const Output> outputs);

  // Lays out a StreamApplyRotaryResponse with a rotated chunk of `bytes` bytes; operand and byte offset are `chunk`'s.
  static Answer OfChunk(const v1::RotaryChunk& chunk, size_t bytes);

  // A piece of a message of another package: bytes of the message, then the data of an output, or nothing.
  struct Piece {
    std::string header;
    const Output* output;  // null, or one in a region: no data
  };
  // Lays out the pieces in this order. Outputs that are in no piece are computed, too, behind the message.
  static absl::StatusOr<Answer> OfPieces(std::vector<Piece> pieces, absl::Span<const Output> outputs);

  // Returns the same behind further bytes of the message.
  Answer Behind(std::string bytes) const;

  // Bytes of the message.
  size_t size() const { return size_; }
  // Bytes of the buffer: more than the message if outputs are computed that it does not have.
  size_t buffer_size() const { return buffer_size_; }
  // Byte offset in the buffer at which the data of output n belong. Meaningless for outputs in shared memory.
  size_t data_offset(size_t n) const { return data_offsets_[n]; }
  // Writes the message to the buffer, except the data.
  void WriteHeaders(std::byte* buffer) const;

 private:
  struct Header {
    size_t offset;
    std::string bytes;
  };
  // Returns RESOURCE_EXHAUSTED if the message is too large.
  absl::Status Complete();

  std::vector<Header> headers_;  // everything but the data
  std::vector<size_t> data_offsets_;
  size_t size_ = 0;
  size_t buffer_size_ = 0;
};

}  // namespace posenc::wire
