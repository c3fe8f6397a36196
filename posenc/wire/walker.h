// Removes tensor data from a serialized request before protobuf parses it (zero-copy parsing).
//
// Strip() copies a message and replaces the data of every posenc.v1.Tensor or TensorChunk, at any depth, and of a field
// of another package that holds tensors' bytes, by a ticket:
// the index of the byte range of the input that holds the data. protobuf then parses the copy. Merging of repeated
// sub-messages, oneof switching, wrong wire types, groups and unknown fields thus follow protobuf's own rules, the
// surviving Tensor.data holds the ticket of the surviving occurrence, and megabytes of tensor data are never copied
// into a std::string.
//
//   in    0a 8a01 (q {  78.. (shape)  7a 8001 <128 bytes> })         field, length, contents
//   out   0a 8b80808000 (q { 78..     7a 04   <ticket>    })         lengths rewritten, five bytes wide
//
// Everything else is copied unchanged. Only sub-messages that can contain such data are parsed, by field number. Groups
// do not exist in proto3 and are copied like any unknown field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

// A field that is not copied unchanged. Tables of these replace lookups in descriptors, which take a tenth of a short
// call's instructions.
struct StrippedField {
  uint32_t number;
  std::optional<size_t> type;  // of a sub-message that can contain data: index of its fields; absent: data
};

class Stripper {
 public:
  // Strips messages of `type`. `more`: a further bytes field that holds tensors' data; null: none. The descriptors must
  // outlive the stripper.
  explicit Stripper(const google::protobuf::Descriptor* type, const google::protobuf::FieldDescriptor* more = nullptr);

  // Returns INVALID_ARGUMENT (MALFORMED) only for input that protobuf refuses: truncation, overlong varints, lengths
  // beyond the end, field number 0, wire types 6 and 7, a wrong end of a group, nesting deeper than 100. Other errors
  // are left to protobuf. RESOURCE_EXHAUSTED if the copy would exceed max_copied_bytes. Throws std::bad_alloc if the
  // thread's memory account refuses the copy or the ranges. Thread-safe.
  absl::StatusOr<Stripped> Strip(google::protobuf::io::ZeroCopyInputStream* input, size_t max_copied_bytes) const;

 private:
  const google::protobuf::Descriptor* type_;
  std::vector<std::vector<StrippedField>> types_;  // of each message type that can contain data; 0: type_
};

// Decodes the ticket in the data of a stripped tensor or chunk. `data` must not be empty.
size_t TicketOf(const std::string& data);

// Encodes a ticket.
std::string TicketText(size_t ticket);

// Returns the input range of the data of a stripped tensor or chunk; length 0 if `data` is empty.
ByteRange RangeOf(const std::string& data, const std::vector<ByteRange>& ranges);

}  // namespace posenc::wire
