// One asynchronous call with serialized messages on a gRPC completion queue.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/types/span.h"

namespace posenc::load {

// Server-side times of a call from its trailer `server-timing`; negative if absent.
struct ServerTimes {
  double queue_us = -1, compute_us = -1;
};
ServerTimes ParseServerTiming(std::string_view trailer);

class Exchange {
 public:
  struct Call {
    const std::string* path;
    absl::Span<const grpc::ByteBuffer> messages;  // not owned, nor is *path; exactly one unless `stream`
    bool stream = false;
    bool keep = false;   // keep the answers
    bool timed = false;  // measure when gRPC sends the headers; takes the client more time for a unary call
    std::chrono::system_clock::time_point deadline;
  };

  explicit Exchange(const Call& call);
  virtual ~Exchange() = default;

  void Start(grpc::GenericStub& stub, grpc::CompletionQueue* queue);
  // Processes one event of the queue; one thread per queue. Returns the exchange after its last event, else null.
  static Exchange* Proceed(void* tag, bool ok) {
    auto* step = static_cast<Step*>(tag);
    (step->exchange->*step->proceed)(ok);
    return --step->exchange->outstanding_ == 0 ? step->exchange : nullptr;
  }

  const grpc::Status& status() const { return status_; }
  std::vector<grpc::ByteBuffer>& answers() { return answers_; }  // complete if Call::keep is set
  size_t received_bytes() const { return received_bytes_; }      // of the answer's messages
  ServerTimes server_times() const;
  // When gRPC had sent the call's headers; absent if it never did, or a unary call is not Call::timed.
  std::optional<std::chrono::steady_clock::time_point> sent() const { return sent_; }

 private:
  struct Step {  // tag of a completion-queue event
    Exchange* exchange;
    void (Exchange::*proceed)(bool ok);
  };
  void Started(bool ok);
  void Written(bool ok);
  void Read(bool ok);
  void Finished(bool ok);
  void WriteNext();

  const Call call_;
  grpc::ClientContext context_;
  grpc::Status status_;
  std::vector<grpc::ByteBuffer> answers_;
  size_t received_bytes_ = 0;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> unary_;

  // Streams and timed calls only.
  std::optional<std::chrono::steady_clock::time_point> sent_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer piece_;
  size_t written_ = 0;
  int outstanding_ = 0;  // gRPC operations in flight
  Step started_{this, &Exchange::Started}, written_step_{this, &Exchange::Written}, read_{this, &Exchange::Read},
      finished_{this, &Exchange::Finished};
};

}  // namespace posenc::load
