// Requests of a mix, serialized once to keep the client's cost per call low.
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

// Most calls in flight. In a closed loop each must get a slot, and one verified answer another if `verify` is set.
struct InFlight {
  size_t count;
  bool closed, verify;
};

// Shared memory of an entry: the inputs, and slots for the answers of calls in flight and of some that are being
// verified. Create returns RESOURCE_EXHAUSTED if a closed loop needs more than kMostBytes; an open loop gets fewer
// slots.
class Slots {
 public:
  static absl::StatusOr<std::unique_ptr<Slots>> Create(const Work& work, const std::string& socket, InFlight in_flight);

  std::optional<Places::Place> Take(bool verifiable) { return places_.Take(verifiable); }
  // The serialized i-th request, whose tensors are in the shared memory and whose answer goes to `place`.
  const grpc::ByteBuffer& Request(size_t i, const Places::Place& place) const {
    return messages_[i * count_ + place.index()];
  }
  // Bytes of the answer at `place`: its tensors in order, each padded to 64 bytes.
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

// Serialized requests of one entry.
struct Requests {
  std::shared_ptr<const Work> work;
  std::string path;                                     // gRPC path of the method
  std::vector<std::vector<grpc::ByteBuffer>> messages;  // by offset; several for a stream; empty for shared memory
  std::unique_ptr<Slots> slots;                         // shared memory only, otherwise null
};

// `socket`: the server's side socket, required for shared memory only.
absl::StatusOr<Requests> MakeRequests(std::shared_ptr<const Work> work, const std::string& socket, InFlight in_flight);

}  // namespace posenc::load
