// Messages to gRPC and back: tensors are sent from where they lie, and received with one copy.
#pragma once

#include <cstddef>
#include <string>

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "google/protobuf/message.h"
#include "posenc/client/backend.h"
#include "posenc/wire/gather.h"
#include "posenc/wire/walker.h"

namespace posenc {

// Bytes that are lent to gRPC, which may hold some of them beyond the call that they were sent with: one that met its
// deadline ends while its bytes wait in a connection's queue. Its end waits until all have come back.
class Loan {
 public:
  Loan() = default;
  // All buffers must be gone, and calls that they were sent with.
  ~Loan();
  Loan(const Loan&) = delete;
  Loan& operator=(const Loan&) = delete;

  grpc::Slice Lend(absl::Span<const std::byte> bytes);
  // The message's pieces: large ones lent, small ones copied.
  grpc::ByteBuffer Lend(const wire::Gathered& message);

 private:
  static void GiveBack(void* loan);

  absl::Mutex mutex_;
  size_t outstanding_ = 0;
};

// Parses the answer to a call from `sender`; each tensor goes to where the caller wants it. INTERNAL where it is not
// such a message. `stripper` is of the response's type.
absl::Status Receive(const grpc::ByteBuffer& answer, const std::string& sender, const wire::Stripper& stripper,
                     const CallOptions& options, google::protobuf::Message* response);

}  // namespace posenc
