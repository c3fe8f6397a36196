// gRPC's byte buffers and status, made of standard types, so that server/calls/call.h and its users run unchanged under
// ThreadSanitizer. To replace <grpcpp/...> this directory must come first among the include directories.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace grpc {

enum StatusCode {
  OK = 0,
  CANCELLED = 1,
  UNKNOWN = 2,
  INVALID_ARGUMENT = 3,
  DEADLINE_EXCEEDED = 4,
  NOT_FOUND = 5,
  ALREADY_EXISTS = 6,
  PERMISSION_DENIED = 7,
  RESOURCE_EXHAUSTED = 8,
  FAILED_PRECONDITION = 9,
  ABORTED = 10,
  OUT_OF_RANGE = 11,
  UNIMPLEMENTED = 12,
  INTERNAL = 13,
  UNAVAILABLE = 14,
  DATA_LOSS = 15,
  UNAUTHENTICATED = 16,
};

class Status {
 public:
  static const Status OK;

  Status() = default;
  Status(StatusCode code, std::string message, std::string details = "")
      : code_(code), message_(std::move(message)), details_(std::move(details)) {}
  bool ok() const { return code_ == StatusCode::OK; }
  StatusCode error_code() const { return code_; }
  const std::string& error_message() const { return message_; }
  const std::string& error_details() const { return details_; }

 private:
  StatusCode code_ = StatusCode::OK;
  std::string message_, details_;
};
inline const Status Status::OK;

// Copies share the bytes; the last one calls `destroy`.
class Slice {
 public:
  explicit Slice(const std::string& bytes) {
    const auto copy = std::make_shared<std::string>(bytes);
    begin_ = reinterpret_cast<const uint8_t*>(copy->data());
    size_ = copy->size();
    owner_ = copy;
  }
  Slice(void* begin, size_t size, void (*destroy)(void*), void* argument)
      : begin_(static_cast<const uint8_t*>(begin)), size_(size), owner_(argument, destroy) {}
  const uint8_t* begin() const { return begin_; }
  const uint8_t* end() const { return begin_ + size_; }
  size_t size() const { return size_; }

 private:
  const uint8_t* begin_;
  size_t size_;
  std::shared_ptr<void> owner_;
};

class ByteBuffer {
 public:
  ByteBuffer() = default;
  ByteBuffer(const Slice* slices, size_t count) : valid_(true), slices_(slices, slices + count) {}
  bool Valid() const { return valid_; }
  const std::vector<Slice>& slices() const { return slices_; }  // for ProtoBufferReader, a friend of gRPC's own class
  size_t Length() const {
    size_t length = 0;
    for (const Slice& slice : slices_) length += slice.size();
    return length;
  }
  Status Dump(std::vector<Slice>* slices) const {
    *slices = slices_;
    return {};
  }
  void Swap(ByteBuffer* other) { std::swap(*this, *other); }
  void Clear() { *this = ByteBuffer(); }

 private:
  bool valid_ = false;
  std::vector<Slice> slices_;
};

}  // namespace grpc
