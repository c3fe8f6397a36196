// Memory that this program shares with a posenc-server on the same host (docs/shared-memory.md). Linux only.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc {

// Registered for as long as this lives and the server does. Movable.
//
//   auto memory = posenc::SharedMemory::Create("/run/posenc/memory.sock", bytes);
//   std::memcpy(memory->data(), q, bytes);
//   *request.mutable_q()->mutable_tensor()->mutable_region() = memory->Part(0, bytes);
//   *request.mutable_q()->mutable_output() = memory->Part(0, bytes);  // in place
//
// While a call is under way the server reads and writes the parts that it names: they must be left alone. After a call
// in place that failed, but for one that the server refused (UNAVAILABLE, OVERLOADED or DRAINING), they hold anything.
class SharedMemory {
 public:
  // `socket`: what the server was given as --shared-memory-socket. bytes >= 1; they are zero. Errors are the server's,
  // or UNAVAILABLE when it is not there.
  static absl::StatusOr<SharedMemory> Create(const std::string& socket, size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }

  // What stands for bytes [offset, offset + size) in a request.
  v1::Region Part(size_t offset, size_t size) const;

 private:
  SharedMemory() = default;

  std::byte* data_ = nullptr;
  size_t size_ = 0;
  int connection_ = -1;  // its end ends the registration
  std::string token_;
};

}  // namespace posenc
