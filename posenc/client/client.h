// Client for a server: a retry loop around gRPC calls.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/functional/function_ref.h"
#include "posenc/backend/backend.h"
#include "posenc/client/retry.h"
#include "posenc/client/tls.h"

namespace posenc {
namespace wire {
struct Gathered;
}

struct ClientOptions {
  // A gRPC target: "localhost:50051", "unix:/run/posenc.sock", "dns:///posenc.example:443".
  std::string address;
  // Number of connections that calls use round-robin. One connection is one byte stream through one thread; use more if
  // several large calls run at a time. >= 1.
  int connections = 1;
  // True if the address stands for several servers, "dns:///posenc.example:443" or
  // "ipv4:10.0.0.1:50051,10.0.0.2:50051": calls go round-robin to those whose health is SERVING. Each of the
  // connections is then one connection to each server.
  bool several_servers = false;
  // Absent: not encrypted, for a server on this machine only. ReadTlsFiles() makes it. A certificate that changes needs
  // a new Client.
  std::optional<Tls> tls;
  // If given, used instead of `tls`: for credentials of another kind.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // Default for calls without CallOptions.timeout: limits the whole call, with all attempts and waits.
  Duration timeout = std::chrono::seconds(60);
  RetryPolicy retry;
  RetryEnvironment environment = SystemRetryEnvironment();
};

// Retries: every method is a pure function of its request. UNAVAILABLE calls are retried as RetryPolicy and the
// server's push-back allow, with a fresh ClientContext for each attempt. Calls in shared memory and in place (an output
// that is its operand's own region) are retried only if the server says that it had not begun; a stream of tiles only
// until its first tile was handed over. StreamApplyRotary sends unanswered chunks again in a new stream. gRPC's own
// retries are off: they do not cover requests above 256 KiB. CallOptions.outputs may overlap .inputs: an answer is
// written only when complete, after the last attempt.
//
// Tensors of 4 KiB and more are sent without a copy from the request, CallOptions.inputs or, if streamed, RotaryMemory.
// A call returns when gRPC has released them. That is at the deadline at the latest, unless the server's end of the
// connection is stuck (a stopped process, a cut cable): then up to 20 seconds later or, over a Unix socket, when that
// process continues or ends.
//
// The client does not limit the size of an answer: the server does (ServerLimits.max_output_bytes). gRPC's default of 4
// MiB would save no memory, because gRPC buffers a whole message before it refuses it.
class Client final : public Backend {
 public:
  explicit Client(ClientOptions options);

 private:
  absl::Status DoUnary(const wire::RpcDescription& rpc, const google::protobuf::Message& request,
                       const CallOptions& options, google::protobuf::Message* response) override;
  absl::Status DoTiles(const wire::RpcDescription& rpc, const google::protobuf::Message& request, AnyTileSink sink,
                       const CallOptions& options) override;
  absl::StatusOr<v1::AnswerInfo> DoStreamApplyRotary(const v1::ApplyRotaryRequest& header, const RotaryMemory& memory,
                                                     const ChunkOptions& chunks, const CallOptions& options) override;
  // No retries: a health check reports the present state.
  absl::StatusOr<ServingStatus> DoCheckHealth(const std::string& service, const CallOptions& options) override;

  using Call = absl::FunctionRef<grpc::Status(const std::shared_ptr<grpc::Channel>&, grpc::ClientContext&)>;
  // Makes one call in its own context and maps its error.
  Attempt Try(Duration remaining, Call call) const;
  Attempt TryUnary(const std::string& method, Duration remaining, const wire::Gathered& request,
                   grpc::ByteBuffer* answer) const;

  const ClientOptions options_;
  std::vector<std::shared_ptr<grpc::Channel>> connections_;
  mutable std::atomic<size_t> next_ = 0;             // next connection, round-robin
  mutable std::atomic<bool> was_connected_ = false;  // a connection has succeeded; selects the error text
};

}  // namespace posenc
