// The client's end of StreamApplyRotary, over as many connections as it takes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/client/backend.h"
#include "posenc/client/transfer.h"

namespace posenc {

// What is still to be sent and to be answered. An answer is written when it has come, and overwrites at most the chunk
// that it is of, which a server answers when it has read all of it; one that was not answered has not been overwritten
// and can be sent again. So tensors may be rotated in place.
class RotaryTransfer {
 public:
  static absl::StatusOr<RotaryTransfer> Create(const v1::ApplyRotaryRequest& header, const RotaryMemory& memory,
                                               const ChunkOptions& options);

  // One stream, with what is left, sent from where it lies; what it did not get answered is left for the next one.
  // gRPC's status, or where the server's answers make no sense, *broken. `loan` outlives the context.
  grpc::Status Run(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context, Loan* loan,
                   absl::Status* broken);

  bool done() const { return waiting_.empty() && !HasNext(); }
  // Chunks answered, of all streams.
  int64_t answered() const { return answered_; }
  const v1::AnswerInfo& info() const { return info_; }

 private:
  struct Chunk {
    v1::Operand operand;
    int64_t begin, size;
  };
  struct Operand {
    v1::Operand name;
    const std::byte* input;
    std::byte* output;
    int64_t size, chunk, next = 0;  // bytes: of all, of a chunk, and where what was never sent begins
  };
  friend class RotaryExchange;

  const Operand* Peek() const;
  bool HasNext() const { return !again_.empty() || Peek() != nullptr; }
  Chunk Next();
  const Operand& Of(v1::Operand name) const { return name == v1::OPERAND_QUERY ? q_ : k_; }

  v1::ApplyRotaryRequest header_;
  size_t in_flight_ = 1;
  Operand q_, k_;
  std::deque<Chunk> again_;    // sent, and to be sent again
  std::deque<Chunk> waiting_;  // sent, and not answered
  int64_t answered_ = 0;
  v1::AnswerInfo info_;
};

}  // namespace posenc
