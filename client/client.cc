#include "client/client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <google/protobuf/wrappers.pb.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/channel_arguments.h>

#include "client/errors.h"

namespace posenc {
namespace {

using Service = v1::PositionalEncodingService::Stub;

int Milliseconds(Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

std::shared_ptr<grpc::Channel> MakeChannel(const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Between attempts to connect, gRPC fails calls at once; its default of a second would outlast our first retries.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Milliseconds(options.retry.initial_backoff));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Milliseconds(options.retry.max_backoff));
  return grpc::CreateCustomChannel(
      options.address, options.credentials ? options.credentials : grpc::InsecureChannelCredentials(), arguments);
}

// Whether there is a connection, after waiting for the end of an attempt to make one, as a call would.
bool Connects(grpc::Channel& channel, std::chrono::system_clock::time_point deadline) {
  for (;;) {
    const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
    if (state != GRPC_CHANNEL_IDLE && state != GRPC_CHANNEL_CONNECTING) return state == GRPC_CHANNEL_READY;
    if (!channel.WaitForStateChange(state, deadline)) return false;
  }
}

}  // namespace

Client::Client(ClientOptions options)
    : options_(std::move(options)),
      channel_(MakeChannel(options_)),
      stub_(v1::PositionalEncodingService::NewStub(channel_)) {}

Attempt Client::Try(Duration remaining, absl::FunctionRef<grpc::Status(grpc::ClientContext&)> call) const {
  grpc::ClientContext context;
  // A year is for ever, and does not overflow the clock.
  const Duration bounded = std::min<Duration>(remaining, std::chrono::hours(24 * 365));
  const auto deadline =
      std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(bounded);
  context.set_deadline(deadline);
  if (Connects(*channel_, deadline)) was_connected_ = true;
  const grpc::Status status = call(context);
  Attempt attempt;
  attempt.status = FromGrpc(status, options_.address, was_connected_);
  if (!status.ok()) attempt.pushback_ms = PushbackFrom(context.GetServerTrailingMetadata());
  return attempt;
}

template <typename Request, typename Response>
absl::StatusOr<Response> Client::Unary(grpc::Status (Service::*method)(grpc::ClientContext*, const Request&, Response*),
                                       const Request& request, const CallOptions& options) const {
  Response response;
  const absl::Status status =
      Retry(options_.retry, options_.environment, options.timeout.value_or(options_.timeout), [&](Duration remaining) {
        return Try(remaining,
                   [&](grpc::ClientContext& context) { return (stub_.get()->*method)(&context, request, &response); });
      });
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::GetServerInfoResponse> Client::DoGetServerInfo(const v1::GetServerInfoRequest& request,
                                                                  const CallOptions& options) {
  return Unary(&Service::GetServerInfo, request, options);
}

absl::StatusOr<v1::ExplainResponse> Client::DoExplain(const v1::ExplainRequest& request, const CallOptions& options) {
  return Unary(&Service::Explain, request, options);
}

absl::StatusOr<v1::AnalyzeResponse> Client::DoAnalyze(const v1::AnalyzeRequest& request, const CallOptions& options) {
  return Unary(&Service::Analyze, request, options);
}

absl::StatusOr<v1::ApplyRotaryResponse> Client::DoApplyRotary(const v1::ApplyRotaryRequest& request,
                                                              const CallOptions& options) {
  return Unary(&Service::ApplyRotary, request, options);
}

absl::StatusOr<v1::GenerateTableResponse> Client::DoGenerateTable(const v1::GenerateTableRequest& request,
                                                                  const CallOptions& options) {
  return Unary(&Service::GenerateTable, request, options);
}

absl::StatusOr<v1::GenerateEmbeddingResponse> Client::DoGenerateEmbedding(const v1::GenerateEmbeddingRequest& request,
                                                                          const CallOptions& options) {
  return Unary(&Service::GenerateEmbedding, request, options);
}

absl::StatusOr<v1::GenerateBiasResponse> Client::DoGenerateBias(const v1::GenerateBiasRequest& request,
                                                                const CallOptions& options) {
  return Unary(&Service::GenerateBias, request, options);
}

absl::StatusOr<v1::AddBiasResponse> Client::DoAddBias(const v1::AddBiasRequest& request, const CallOptions& options) {
  return Unary(&Service::AddBias, request, options);
}

absl::StatusOr<v1::RelativeScoresResponse> Client::DoRelativeScores(const v1::RelativeScoresRequest& request,
                                                                    const CallOptions& options) {
  return Unary(&Service::RelativeScores, request, options);
}

absl::StatusOr<v1::RelativeValuesResponse> Client::DoRelativeValues(const v1::RelativeValuesRequest& request,
                                                                    const CallOptions& options) {
  return Unary(&Service::RelativeValues, request, options);
}

absl::StatusOr<ServingStatus> Client::DoCheckHealth(const std::string& service, const CallOptions& options) {
  // grpc.health.v1's HealthCheckRequest { string service = 1 } and HealthCheckResponse { ServingStatus status = 1 }
  // are, on the wire, protobuf's own wrappers; so no copy of its proto file is needed.
  google::protobuf::StringValue request;
  request.set_value(service);
  google::protobuf::Int32Value response;
  const Attempt attempt = Try(options.timeout.value_or(options_.timeout), [&](grpc::ClientContext& context) {
    grpc::TemplatedGenericStub<google::protobuf::StringValue, google::protobuf::Int32Value> stub(channel_);
    grpc::CompletionQueue queue;
    const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
    grpc::Status status;
    call->StartCall();
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  });
  if (!attempt.status.ok()) return attempt.status;
  const int value = response.value();
  return value >= 0 && value <= 3 ? static_cast<ServingStatus>(value) : ServingStatus::kUnknown;
}

}  // namespace posenc
