// The mix's calls as bytes, made once, so that a call costs the client as little as can be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/load/work.h"
#include "client/shared_memory.h"

namespace posenc::load {

// Memory of an entry that caller and server share: the inputs, and a place for the answer of each call in flight.
class Slots {
 public:
  // At most `count`, fewer where they would take more than kMostBytes.
  static absl::StatusOr<std::unique_ptr<Slots>> Create(const Work& work, const std::string& socket, size_t count);

  size_t count() const { return count_; }
  // Absent (-1): all are taken. Thread-safe, as is Give.
  int Take();
  void Give(int slot);

  // The i-th request with its tensors in the memory and its answer in that slot, as a message.
  const grpc::ByteBuffer& Request(size_t i, int slot) const {
    return messages_[i * count_ + static_cast<size_t>(slot)];
  }
  // The answer's bytes, tensor after tensor.
  absl::Span<std::byte> Answer(int slot);

  static constexpr size_t kMostBytes = size_t{1} << 30;

 private:
  explicit Slots(SharedMemory memory) : memory_(std::move(memory)) {}

  SharedMemory memory_;
  size_t count_ = 0, input_bytes_ = 0, answer_bytes_ = 0;
  std::vector<grpc::ByteBuffer> messages_;
  std::mutex mutex_;
  std::vector<int> free_;
};

// What one entry's calls send.
struct Requests {
  std::shared_ptr<const Work> work;
  std::string path;                                     // of the method
  std::vector<std::vector<grpc::ByteBuffer>> messages;  // by offset; of a stream several. Not of shared memory
  std::unique_ptr<Slots> slots;                         // of shared memory
};

// `socket`: the server's side socket, for shared memory; `in_flight`: calls at a time at most.
absl::StatusOr<Requests> MakeRequests(std::shared_ptr<const Work> work, const std::string& socket, size_t in_flight);

}  // namespace posenc::load
