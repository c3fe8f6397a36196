// The mix's calls as bytes, made once, so that a call costs the client as little as can be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/load/work.h"
#include "client/shared_memory.h"

namespace posenc::load {

// Calls at a time at most; those of a closed loop must all find a place.
struct InFlight {
  size_t count;
  bool closed;
};

// Memory of an entry that caller and server share: the inputs, and a place for the answer of each call in flight and of
// some that are being verified. RESOURCE_EXHAUSTED where a closed loop's would take more than kMostBytes; an open loop
// has fewer then.
class Slots {
 public:
  // One of the places, until it is destroyed.
  class Place {
   public:
    Place(Place&& other) noexcept : slots_(std::exchange(other.slots_, nullptr)), slot_(other.slot_) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(slots_, other.slots_);
      std::swap(slot_, other.slot_);
      return *this;
    }
    ~Place() {
      if (slots_ != nullptr) slots_->Give(slot_);
    }

    // Whether what is there can only be its call's answer.
    bool verifiable() const { return slots_->slots_[slot_].verified; }
    // A call was given up that the server may answer yet: nothing can be said of what is there from now on.
    void Spoil() { slots_->slots_[slot_].spoilt = true; }
    // The i-th request with its tensors in the memory and its answer here, as a message.
    const grpc::ByteBuffer& Request(size_t i) const { return slots_->messages_[i * slots_->slots_.size() + slot_]; }
    // The answer's bytes, tensor after tensor.
    absl::Span<std::byte> answer() const;

   private:
    friend class Slots;
    Place(Slots* slots, size_t slot) : slots_(slots), slot_(slot) {}

    Slots* slots_;
    size_t slot_;
  };

  static absl::StatusOr<std::unique_ptr<Slots>> Create(const Work& work, const std::string& socket, InFlight in_flight);

  // Absent: all are taken. Verifiable, if that is wanted and not too many are already. Thread-safe.
  std::optional<Place> Take(bool verifiable);

  static constexpr size_t kMostBytes = size_t{1} << 30;

 private:
  struct Slot {
    bool spoilt = false, verified = false;
  };

  explicit Slots(SharedMemory memory) : memory_(std::move(memory)) {}
  void Give(size_t slot);

  SharedMemory memory_;
  size_t input_bytes_ = 0, answer_bytes_ = 0;
  std::vector<grpc::ByteBuffer> messages_;
  size_t most_verified_ = 0;
  std::vector<Slot> slots_;  // each its taker's, while it is taken

  std::mutex mutex_;
  size_t verified_ = 0;
  std::vector<size_t> clean_, spoilt_;  // free ones
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
