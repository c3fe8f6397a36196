// Takes the tensors' bytes out of a serialized request before protobuf sees it.
//
// Strip() copies a message with every data of a posenc.v1.Tensor or TensorChunk, at any depth, replaced by a ticket:
// the index of the byte range of the input that holds the data. protobuf then parses the copy. So merging of repeated
// sub-messages, oneof switching, wrong wire types, groups and unknown fields stay protobuf's own rules, the surviving
// Tensor.data holds the ticket of the surviving occurrence, and megabytes of tensor are never copied into a
// std::string.
//
//   in    0a 8a01 (q {  78.. (shape)  7a 8001 <128 bytes> })         field, length, contents
//   out   0a 8b80808000 (q { 78..     7a 04   <ticket>    })         lengths rewritten, five bytes wide
//
// Everything else is copied as it stands. Only sub-messages that can contain such data are looked into, by their
// fields' numbers; a group is never one of them (proto3 has none) and is copied like any unknown field.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/io/zero_copy_stream.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::wire {

// Bytes [offset, offset + length) of the serialized request.
struct ByteRange {
  size_t offset;
  size_t length;
};

struct Stripped {
  std::string message;
  std::vector<ByteRange> ranges;  // a ticket is an index into this
};

class Stripper {
 public:
  // For messages of this type, which must outlive the stripper.
  explicit Stripper(const google::protobuf::Descriptor* type);

  // Refuses (INVALID_ARGUMENT, MALFORMED) only what protobuf refuses: truncation, overlong varints, lengths beyond the
  // end, field number 0, wire types 6 and 7, a wrong end of a group, nesting deeper than 100. What it lets pass,
  // protobuf judges. RESOURCE_EXHAUSTED when the copy would exceed max_copied_bytes.
  absl::StatusOr<Stripped> Strip(google::protobuf::io::ZeroCopyInputStream* input, size_t max_copied_bytes) const;

 private:
  const google::protobuf::Descriptor* type_;
  absl::flat_hash_set<const google::protobuf::Descriptor*> carriers_;  // message types that can contain data
};

// The ticket that the data of a tensor, or chunk, of a stripped and parsed message are, which must not be empty.
size_t TicketOf(const std::string& data);

// The range that the data of a tensor, or chunk, of a stripped and parsed message stands for. Empty data: length 0.
ByteRange RangeOf(const std::string& data, const std::vector<ByteRange>& ranges);

}  // namespace posenc::wire
