// The mix's calls as bytes, made once, so that a call costs the client as little as can be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "posenc/client/shared_memory.h"
#include "tools/load/places.h"
#include "tools/load/work.h"

namespace posenc::load {

// Calls at a time at most; those of a closed loop must all find a place, and one that is verified, if any is to be.
struct InFlight {
  size_t count;
  bool closed, verify;
};

// Memory of an entry that caller and server share: the inputs, and a place for the answer of each call in flight and of
// some that are being verified. RESOURCE_EXHAUSTED where a closed loop's would take more than kMostBytes; an open loop
// has fewer then.
class Slots {
 public:
  static absl::StatusOr<std::unique_ptr<Slots>> Create(const Work& work, const std::string& socket, InFlight in_flight);

  std::optional<Places::Place> Take(bool verifiable) { return places_.Take(verifiable); }
  // The i-th request with its tensors in the memory and its answer in that place, as a message.
  const grpc::ByteBuffer& Request(size_t i, const Places::Place& place) const {
    return messages_[i * count_ + place.index()];
  }
  // The answer's bytes, tensor after tensor.
  absl::Span<std::byte> Answer(const Places::Place& place);

  static constexpr size_t kMostBytes = size_t{1} << 30;

 private:
  Slots(SharedMemory memory, size_t count, size_t most_verified)
      : memory_(std::move(memory)), count_(count), places_(count, most_verified) {}

  SharedMemory memory_;
  const size_t count_;
  size_t input_bytes_ = 0, answer_bytes_ = 0;
  std::vector<grpc::ByteBuffer> messages_;
  Places places_;
};

// What one entry's calls send.
struct Requests {
  std::shared_ptr<const Work> work;
  std::string path;                                     // of the method
  std::vector<std::vector<grpc::ByteBuffer>> messages;  // by offset; of a stream several. Not of shared memory
  std::unique_ptr<Slots> slots;                         // of shared memory
};

// `socket`: the server's side socket, for shared memory.
absl::StatusOr<Requests> MakeRequests(std::shared_ptr<const Work> work, const std::string& socket, InFlight in_flight);

}  // namespace posenc::load
