// Client side of StreamApplyRotary, over as many streams as it takes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/backend/backend.h"
#include "posenc/client/transfer.h"

namespace posenc {

// State of a transfer: chunks to send and chunks in flight. An answer overwrites at most its own chunk, which the
// server has then read completely. A chunk that was not answered has not been overwritten and can be sent again. So
// tensors may be rotated in place.
class RotaryTransfer {
 public:
  static absl::StatusOr<RotaryTransfer> Create(const v1::ApplyRotaryRequest& header, const RotaryMemory& memory,
                                               const ChunkOptions& options);

  // Runs one stream with what is left, sent without a copy; chunks that it did not get answered are left for the next
  // one. Returns gRPC's status; sets *broken if the server's answers are invalid. `loan` must outlive the context.
  grpc::Status Run(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context, Loan* loan,
                   absl::Status* broken);

  bool done() const { return waiting_.empty() && !HasNext(); }
  // Number of chunks answered, over all streams.
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
    int64_t size, chunk, next = 0;  // bytes: total, per chunk, and offset of the first one never sent
  };
  friend class RotaryExchange;

  const Operand* Peek() const;
  bool HasNext() const { return !again_.empty() || Peek() != nullptr; }
  Chunk Next();
  const Operand& Of(v1::Operand name) const { return name == v1::OPERAND_QUERY ? q_ : k_; }

  v1::ApplyRotaryRequest header_;
  size_t in_flight_ = 1;
  Operand q_, k_;
  std::deque<Chunk> again_;    // sent without an answer, to be sent again
  std::deque<Chunk> waiting_;  // in flight: sent, not answered
  int64_t answered_ = 0;
  v1::AnswerInfo info_;
};

}  // namespace posenc
