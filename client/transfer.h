// Messages to gRPC and back: tensors are sent from where they lie, and received with one copy.
#pragma once

#include <string>

#include <grpcpp/support/byte_buffer.h>

#include "absl/status/status.h"
#include "absl/synchronization/blocking_counter.h"
#include "client/backend.h"
#include "google/protobuf/message.h"
#include "wire/gather.h"
#include "wire/walker.h"

namespace posenc {

// A message whose pieces are lent to gRPC, which may hold some of them beyond the call that they were sent with: one
// that met its deadline ends while its bytes wait in a connection's queue. Its end waits until all have come back.
class Loan {
 public:
  explicit Loan(const wire::Gathered& message);
  // All buffers must be gone, and calls that they were sent with.
  ~Loan() { outstanding_.Wait(); }
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  // Once.
  grpc::ByteBuffer Lend();

 private:
  const wire::Gathered& message_;
  absl::BlockingCounter outstanding_;
};

// Parses the answer to a call from `sender`; each tensor goes to where the caller wants it. INTERNAL where it is not
// such a message. `stripper` is of the response's type.
absl::Status Receive(const grpc::ByteBuffer& answer, const std::string& sender, const wire::Stripper& stripper,
                     const CallOptions& options, google::protobuf::Message* response);

}  // namespace posenc
