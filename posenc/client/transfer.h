// Conversion of messages to and from gRPC: tensors are sent without a copy, and received with one.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "posenc/backend/backend.h"
#include "posenc/wire/gather.h"
#include "posenc/wire/walker.h"

namespace posenc {

// Bytes lent to gRPC, which may hold some of them after the call: a call that met its deadline ends while its bytes
// wait in a connection's queue. The destructor blocks until gRPC has returned all of them.
class Loan {
 public:
  Loan() = default;
  // All buffers, and the calls that they were sent with, must be destroyed first.
  ~Loan();
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  grpc::Slice Lend(absl::Span<const std::byte> bytes);
  // Lends the message's large pieces and copies the small ones.
  grpc::ByteBuffer Lend(const wire::Gathered& message);

 private:
  static void GiveBack(void* loan);

  std::mutex mutex_;
  std::condition_variable all_returned_;
  size_t outstanding_ = 0;
};

// Parses the answer of `sender` to the request and puts each tensor where the caller wants it. Returns INTERNAL if it
// is not such a message, or if a tensor does not have the bytes that its type and shape need, in the message or in an
// output region of the request. `stripper` is for the response's type.
absl::Status Receive(const grpc::ByteBuffer& answer, const std::string& sender,
                     const google::protobuf::Message& request, const wire::Stripper& stripper,
                     const CallOptions& options, google::protobuf::Message* response);

}  // namespace posenc
