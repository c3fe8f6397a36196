// The service on a server: a retry loop around gRPC's calls.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/functional/function_ref.h"
#include "posenc/client/backend.h"
#include "posenc/client/retry.h"
#include "posenc/v1/service.grpc.pb.h"

namespace posenc {
namespace wire {
struct Gathered;
}

struct ClientOptions {
  // A gRPC target: "localhost:50051", "unix:/run/posenc.sock", "dns:///posenc.example:443".
  std::string address;
  // How many connections calls take in turn. One is a single stream of bytes through one thread: more are worth having
  // where several large calls run at a time. >= 1.
  int connections = 1;
  // Whether the address stands for several servers, "dns:///posenc.example:443" or
  // "ipv4:10.0.0.1:50051,10.0.0.2:50051": calls take turns over those of them whose health is SERVING. Each of the
  // connections is then one to each server.
  bool several_servers = false;
  // Absent: none, which is for a server on this machine only; anything that leaves it wants grpc::SslCredentials.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // For calls whose CallOptions name no other: the whole call, with all attempts and the waits between them.
  Duration timeout = std::chrono::seconds(60);
  RetryPolicy retry;
  RetryEnvironment environment = SystemRetryEnvironment();
};

// Every method computes a pure function of its request, therefore each may be repeated, but for calls in shared memory
// and in place (an output that is its operand's own region), which are only where the server refused to begin.
// UNAVAILABLE is, as RetryPolicy says and as far as the server's push-back allows, with a fresh ClientContext for each
// attempt; a stream of tiles only until its first one has been handed over; StreamApplyRotary goes on, in a new stream,
// with what was not answered. gRPC's own retries are off: they do not cover requests above 256 KiB. CallOptions.outputs
// over .inputs are no hindrance: an answer is written to its memory when it has come whole, after the last attempt.
//
// Tensors of 4 KiB and more are sent from the request or CallOptions.inputs without a copy, and streamed ones from
// RotaryMemory. A call returns when gRPC has let go of them. That is at the deadline, but for a server whose end of the
// connection is stuck (a stopped process, a cut cable): then up to 20 seconds after it, and over a Unix socket when
// that process goes on or ends.
//
// There is no limit on the size of an answer: the server has one (ServerLimits.max_output_bytes), and gRPC's default
// of 4 MiB would not save memory here anyway, because it buffers a message whole before it refuses it.
class Client final : public Backend {
 public:
  explicit Client(ClientOptions options);

 private:
  absl::StatusOr<v1::GetServerInfoResponse> DoGetServerInfo(const v1::GetServerInfoRequest& request,
                                                            const CallOptions& options) override;
  absl::StatusOr<v1::ExplainResponse> DoExplain(const v1::ExplainRequest& request, const CallOptions& options) override;
  absl::StatusOr<v1::AnalyzeResponse> DoAnalyze(const v1::AnalyzeRequest& request, const CallOptions& options) override;
  absl::StatusOr<v1::ApplyRotaryResponse> DoApplyRotary(const v1::ApplyRotaryRequest& request,
                                                        const CallOptions& options) override;
  absl::StatusOr<v1::AnswerInfo> DoStreamApplyRotary(const v1::ApplyRotaryRequest& header, const RotaryMemory& memory,
                                                     const ChunkOptions& chunks, const CallOptions& options) override;
  absl::StatusOr<v1::GenerateTableResponse> DoGenerateTable(const v1::GenerateTableRequest& request,
                                                            const CallOptions& options) override;
  absl::Status DoStreamTable(const v1::StreamTableRequest& request, TileSink sink, const CallOptions& options) override;
  absl::StatusOr<v1::GenerateEmbeddingResponse> DoGenerateEmbedding(const v1::GenerateEmbeddingRequest& request,
                                                                    const CallOptions& options) override;
  absl::StatusOr<v1::GenerateBiasResponse> DoGenerateBias(const v1::GenerateBiasRequest& request,
                                                          const CallOptions& options) override;
  absl::Status DoStreamBias(const v1::StreamBiasRequest& request, BiasTileSink sink,
                            const CallOptions& options) override;
  absl::StatusOr<v1::AddBiasResponse> DoAddBias(const v1::AddBiasRequest& request, const CallOptions& options) override;
  absl::StatusOr<v1::RelativeScoresResponse> DoRelativeScores(const v1::RelativeScoresRequest& request,
                                                              const CallOptions& options) override;
  absl::StatusOr<v1::RelativeValuesResponse> DoRelativeValues(const v1::RelativeValuesRequest& request,
                                                              const CallOptions& options) override;
  absl::StatusOr<v1::DiagnoseResponse> DoDiagnose(const v1::DiagnoseRequest& request,
                                                  const CallOptions& options) override;
  absl::StatusOr<v1::DiagnoseBiasResponse> DoDiagnoseBias(const v1::DiagnoseBiasRequest& request,
                                                          const CallOptions& options) override;
  // One attempt: who probes wants to know about now.
  absl::StatusOr<ServingStatus> DoCheckHealth(const std::string& service, const CallOptions& options) override;

  using Call = absl::FunctionRef<grpc::Status(const std::shared_ptr<grpc::Channel>&, grpc::ClientContext&)>;
  // One call in a context of its own, its error mapped.
  Attempt Try(Duration remaining, Call call) const;
  Attempt TryUnary(const std::string& method, Duration remaining, const wire::Gathered& request,
                   grpc::ByteBuffer* answer) const;

  template <typename Response>
  absl::StatusOr<Response> Unary(const char* method, const google::protobuf::Message& request,
                                 const CallOptions& options) const;

  template <typename Request, typename Response>
  absl::Status Tiles(std::unique_ptr<grpc::ClientReader<Response>> (v1::PositionalEncodingService::Stub::*method)(
                         grpc::ClientContext*, const Request&),
                     const Request& request, absl::FunctionRef<absl::Status(const Response&)> sink,
                     const CallOptions& options) const;

  const ClientOptions options_;
  std::vector<std::shared_ptr<grpc::Channel>> connections_;
  mutable std::atomic<size_t> next_ = 0;             // of them
  mutable std::atomic<bool> was_connected_ = false;  // a server was there once: what fails now has lost it
};

}  // namespace posenc
