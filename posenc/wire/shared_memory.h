// Regions: memory that a caller shares, in place of bytes in the message (docs/shared-memory.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "posenc/device/device.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc::wire {

// Memory that is mapped here and at the caller's, who may write to it at any time. Whoever uses it holds it.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  virtual absl::Span<std::byte> bytes() const = 0;
  virtual bool writable() const = 0;
  // Which file it is the beginning of: mappings of one file overlap although their addresses do not.
  virtual std::pair<uint64_t, uint64_t> file() const = 0;
  // Whether the memory has gone from under a reader or a writer. Once it has, it stays so.
  virtual bool damaged() const = 0;
  // Whose memory it is: bytes() are addresses there, which nobody here may read. Null: this host's.
  virtual Device* device() const { return nullptr; }
};

// Where tokens are known. Thread-safe.
class SharedMemorySource {
 public:
  virtual ~SharedMemorySource() = default;
  // Null for a token that is not registered.
  virtual std::shared_ptr<const SharedMemory> Find(std::string_view token) const = 0;
};

// The regions of one request, held for as long as this lives. Immutable.
class RequestRegions {
 public:
  // Finds every Region of the request, at any depth. NOT_FOUND for an unknown token, INVALID_ARGUMENT for a part beyond
  // the memory, data beside a region, memory of a device that is not both operand and output of a rotation, an output
  // to memory that is registered read-only, and an output that overlaps anything else that the call reads or writes,
  // unless it is exactly the operand that it is the output of.
  static absl::StatusOr<RequestRegions> Find(const google::protobuf::Message& request,
                                             const SharedMemorySource& source);

  // The first byte of a region of that request.
  std::byte* At(const v1::Region& region) const;
  Device* DeviceOf(const v1::Region& region) const;
  // DATA_LOSS naming the field, if any of the memory is damaged.
  absl::Status CheckUndamaged() const;

  // Bytes of all tensors in regions; outputs are none.
  int64_t read_bytes() const { return read_bytes_; }
  // Bytes of the tensors that are copied before they are used: all but operands of the answer's own shape.
  int64_t copied_bytes() const { return copied_bytes_; }

 private:
  struct Use {
    std::string path;
    v1::Region region;
    bool is_output;
    std::shared_ptr<const SharedMemory> memory;
  };
  absl::Status CheckOverlaps() const;
  absl::Status CheckDevices(const google::protobuf::Message& request) const;
  void Count();

  std::vector<Use> uses_;
  int64_t read_bytes_ = 0;
  int64_t copied_bytes_ = 0;
};

// Whether there is a Region in the request, at any depth.
bool HasRegions(const google::protobuf::Message& request);

// Whether an output of the request is also one of its operands: then a second run would not find what the first one
// read.
bool IsInPlace(const google::protobuf::Message& request);

}  // namespace posenc::wire
