// Memory shared with a posenc-server on the same host (docs/shared-memory.md). Linux only.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc {

// Memory that is registered for as long as this object and the server live. Movable.
//
//   auto memory = posenc::SharedMemory::Create("/run/posenc/memory.sock", bytes);
//   std::memcpy(memory->data(), q, bytes);
//   *request.mutable_q()->mutable_tensor()->mutable_region() = memory->Part(0, bytes);
//   *request.mutable_q()->mutable_output() = memory->Part(0, bytes);  // in place
//
// During a call the server reads and writes the parts that it names: do not access them. After a failed call in place
// their contents are undefined. After a call that ended without the server's answer (deadline, lost connection) the
// server may still write there: use new memory for other calls. A forked child must not use the memory.
class SharedMemory {
 public:
  // `socket`: the server's --shared-memory-socket. `bytes` >= 1; they start as zeros. Returns the server's error, or
  // UNAVAILABLE if it does not answer.
  static absl::StatusOr<SharedMemory> Create(const std::string& socket, size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  // The region of bytes [offset, offset + size), for use in a request.
  v1::Region Part(size_t offset, size_t size) const;

 private:
  SharedMemory() = default;

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int connection_ = -1;  // closing it ends the registration
  std::string token_;
};

}  // namespace posenc
