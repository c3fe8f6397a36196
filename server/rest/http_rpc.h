// One call over HTTP, as the reactors of gRPC's methods see it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/status.h"
#include "server/access/policy.h"
#include "server/calls/call.h"
#include "server/calls/methods.h"
#include "server/http/message.h"

namespace posenc::server {

// Who calls, and how: known once a request's header has come.
struct HttpCaller {
  std::string connection;  // Rpc::connection()
  bool is_local = false;
  std::shared_ptr<const Identity> identity;  // null: the server has no policy
  std::shared_ptr<CallSpan> span;            // ends with its last owner; null: the call is not traced
};

// Makes the answer of a call that has ended with OK.
struct HttpAnswerWriter {
  std::function<absl::StatusOr<HttpAnswer>(grpc::ByteBuffer message)> write;
  bool takes_long = false;  // for messages of more than 64 KiB, which a thread of the pool writes then
};

// Serves a unary call: `method` gets `request`, and the client what `writer` makes of the answer, or an error. Text of
// an answer is charged until it is sent.
void ServeHttpCall(Core* core, const Method& method, std::shared_ptr<HttpExchange> exchange, HttpCaller caller,
                   const grpc::ByteBuffer& request, HttpAnswerWriter writer);

// Says in a call's span how it ended, which ServeHttpCall() does itself. Nothing happens if it is null.
void SetHttpStatus(int http_status, const grpc::Status& status, CallSpan* span);

// The error of a call, as the Open Inference Protocol has it, with the details of the typed API's errors beside it.
HttpAnswer HttpErrorOf(const grpc::Status& status);

}  // namespace posenc::server
