// The service on a server: a retry loop around the generated stub.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>

#include "absl/functional/function_ref.h"
#include "client/backend.h"
#include "client/retry.h"
#include "posenc/v1/service.grpc.pb.h"

namespace posenc {

struct ClientOptions {
  // A gRPC target: "localhost:50051", "unix:/run/posenc.sock", "dns:///posenc.example:443".
  std::string address;
  // Absent: none, which is for a server on this machine only; anything that leaves it wants grpc::SslCredentials.
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  // For calls whose CallOptions name no other: the whole call, with all attempts and the waits between them.
  Duration timeout = std::chrono::seconds(60);
  RetryPolicy retry;
  RetryEnvironment environment = SystemRetryEnvironment();
};

// Every method computes a pure function of its request, therefore each may be repeated. UNAVAILABLE is, as RetryPolicy
// says and as far as the server's push-back allows, with a fresh ClientContext for each attempt; a stream of tiles
// only until its first one has been handed over; StreamApplyRotary goes on, in a new stream, with what was not
// answered. gRPC's own retries are off: they do not cover requests above 256 KiB.
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
  // One attempt: who probes wants to know about now.
  absl::StatusOr<ServingStatus> DoCheckHealth(const std::string& service, const CallOptions& options) override;

  // One call in a context of its own, its error mapped.
  Attempt Try(Duration remaining, absl::FunctionRef<grpc::Status(grpc::ClientContext&)> call) const;

  template <typename Request, typename Response>
  absl::StatusOr<Response> Unary(grpc::Status (v1::PositionalEncodingService::Stub::*method)(grpc::ClientContext*,
                                                                                             const Request&, Response*),
                                 const Request& request, const CallOptions& options) const;

  template <typename Request, typename Response>
  absl::Status Tiles(std::unique_ptr<grpc::ClientReader<Response>> (v1::PositionalEncodingService::Stub::*method)(
                         grpc::ClientContext*, const Request&),
                     const Request& request, absl::FunctionRef<absl::Status(const Response&)> sink,
                     const CallOptions& options) const;

  const ClientOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<v1::PositionalEncodingService::Stub> stub_;
  mutable std::atomic<bool> was_connected_ = false;  // a server was there once: what fails now has lost it
};

}  // namespace posenc
