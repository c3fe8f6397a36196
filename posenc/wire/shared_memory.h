// Shared-memory regions, which replace tensor bytes in the message (docs/shared-memory.md).
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

// Memory mapped in this process and the caller's; the caller may write to it at any time. Held by shared_ptr.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  virtual absl::Span<std::byte> bytes() const = 0;
  virtual bool writable() const = 0;
  // Returns an id of the file that is mapped. Mappings with equal ids may overlap, at other addresses.
  virtual std::pair<uint64_t, uint64_t> file() const = 0;
  // Returns where in the file the bytes begin.
  virtual int64_t file_offset() const { return 0; }
  // Returns true once the file was truncated under a reader or a writer; it then stays true.
  virtual bool damaged() const = 0;
  // Returns true if the file is known to be of a user whom the server need not trust. Reading such memory can wait for
  // as long as that user wants, e.g. while holes are punched into the file, and the kernel does not interrupt that
  // wait.
  virtual bool of_other_user() const { return false; }
  // Returns the device that owns the memory; bytes() are then device addresses, not readable here. Null: host memory.
  virtual Device* device() const { return nullptr; }
};

// Registry of shared memory by token. Thread-safe.
class SharedMemorySource {
 public:
  virtual ~SharedMemorySource() = default;
  // Returns null if the token is not registered.
  virtual std::shared_ptr<const SharedMemory> Find(std::string_view token) const = 0;
};

// The regions of one request; holds a reference to their memory. Immutable.
class RequestRegions {
 public:
  // Finds every Region of the request, at any depth. NOT_FOUND for an unknown token; DATA_LOSS for damaged memory.
  // INVALID_ARGUMENT for a token that is not 16 bytes, a range beyond the memory, data beside a region, device memory
  // other than all operands and outputs of a rotation, an output in memory registered as read-only, and an output that
  // overlaps anything else the call reads or writes, unless it equals its own operand (in place).
  static absl::StatusOr<RequestRegions> Find(const google::protobuf::Message& request,
                                             const SharedMemorySource& source);

  // Returns the first byte of a region of the request. Aborts if the region is not part of it.
  std::byte* At(const v1::Region& region) const;
  // Returns a tensor's bytes: those in copies(), if they are there.
  absl::Span<const std::byte> BytesOf(const v1::Region& region) const;
  Device* DeviceOf(const v1::Region& region) const;
  // Returns true if any of the memory is. Then Find() has read none of it, and no receiving thread may.
  bool of_other_user() const;
  // Returns DATA_LOSS naming the field if any of the memory is damaged.
  absl::Status CheckUndamaged() const;

  // Returns the bytes of all input tensors in regions, outputs excluded. Saturates at the int64 maximum.
  int64_t read_bytes() const { return read_bytes_; }
  // Returns the bytes of input tensors that are copied before use: all but operands with the answer's shape.
  int64_t copied_bytes() const { return copied_bytes_; }
  // Returns those bytes as they were in Find(), in the order of the tensors; empty if they are more than 16 KiB, or if
  // some memory is of another user.
  const std::string& copies() const { return copies_; }

 private:
  struct Use {
    std::string path;
    v1::Region region;
    bool is_output;
    std::shared_ptr<const SharedMemory> memory;
    bool is_copied = false;
  };
  absl::Status CheckOverlaps() const;
  absl::Status CheckDevices(const google::protobuf::Message& request) const;
  void Count();
  void Copy();

  std::vector<Use> uses_;
  int64_t read_bytes_ = 0;
  int64_t copied_bytes_ = 0;
  std::string copies_;
};

// Returns true if the region is an output of the request.
bool IsOutput(const v1::Region& region, const google::protobuf::Message& request);

// Returns true if an output of the request is also its operand. Such a request must not be retried: the first run
// overwrites its input.
bool IsInPlace(const google::protobuf::Message& request);

// Returns true if an output of the request is a region.
bool WritesRegions(const google::protobuf::Message& request);

}  // namespace posenc::wire
