#include "posenc/client/client.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <google/protobuf/wrappers.pb.h>
#include <grpc/grpc.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/channel_arguments.h>

#include "posenc/backend/tensor_memory.h"
#include "posenc/base/status.h"
#include "posenc/client/credentials.h"
#include "posenc/client/errors.h"
#include "posenc/client/transfer.h"
#include "posenc/wire/gather.h"
#include "posenc/wire/shared_memory.h"

namespace posenc {
namespace {

int Milliseconds(Duration duration) {
  return static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

// Service config: round-robin over the name's servers whose health service reports SERVING.
constexpr char kSeveralServers[] = R"({
  "loadBalancingConfig": [{"round_robin": {}}],
  "healthCheckConfig": {"serviceName": "posenc.v1.PositionalEncodingService"}
})";
// A call whose bytes are stuck in TCP, e.g. to a stopped process, ends only with its connection. gRPC also sets the
// keepalive timeout as TCP's own.
constexpr int kKeepaliveMilliseconds = 30000;
constexpr int kKeepaliveTimeoutMilliseconds = 20000;
// A name is resolved again when a server is lost, but not more often than this. With gRPC's default of 30 seconds a
// client would not learn the addresses of new servers while a rolling update replaces the ones that it knows.
constexpr int kResolutionMilliseconds = 500;

std::shared_ptr<grpc::Channel> MakeChannel(const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  if (options.several_servers) arguments.SetServiceConfigJSON(kSeveralServers);
  // By default, channels to one address share a connection.
  if (options.connections > 1) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, kResolutionMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMilliseconds);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Between attempts to connect, gRPC fails calls at once. Its default backoff of a second would outlast our first
  // retries.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, Milliseconds(options.retry.initial_backoff));
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, Milliseconds(options.retry.max_backoff));
  const auto credentials =
      options.credentials ? options.credentials : ChannelCredentials(options.address, options.tls, &arguments);
  return grpc::CreateCustomChannel(options.address, credentials, arguments);
}

// Waits for a pending connection attempt, as a call would. Returns true if the channel is connected.
bool Connects(grpc::Channel& channel, std::chrono::system_clock::time_point deadline) {
  for (;;) {
    const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
    if (state != GRPC_CHANNEL_IDLE && state != GRPC_CHANNEL_CONNECTING) return state == GRPC_CHANNEL_READY;
    if (!channel.WaitForStateChange(state, deadline)) return false;
  }
}

// Makes a unary call like the generated stub, with bytes for messages. Afterwards gRPC holds no part of the request
// except what a connection may have queued.
grpc::Status SendUnary(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                       grpc::ClientContext* context, const grpc::ByteBuffer& request, grpc::ByteBuffer* answer) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareUnaryCall(context, method, request, &queue);
  grpc::Status status;
  call->StartCall();
  call->Finish(answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

}  // namespace

Client::Client(ClientOptions options) : options_(std::move(options)) {
  // Keeps gRPC initialized until the process ends: the destructor of its last object may block for ten seconds (a
  // thread blocked in poll, seen with 1.51).
  [[maybe_unused]] static const bool kept_up = (grpc_init(), true);
  for (int n = 0; n < std::max(options_.connections, 1); ++n) {
    connections_.push_back(MakeChannel(options_));
  }
}

Attempt Client::Try(Duration remaining, Call call) const {
  const std::shared_ptr<grpc::Channel>& channel = connections_[next_++ % connections_.size()];
  grpc::ClientContext context;
  // A year stands for no deadline and does not overflow the clock.
  const Duration bounded = std::min<Duration>(remaining, std::chrono::hours(24 * 365));
  const auto deadline =
      std::chrono::system_clock::now() + std::chrono::duration_cast<std::chrono::system_clock::duration>(bounded);
  context.set_deadline(deadline);
  if (Connects(*channel, deadline)) was_connected_ = true;
  const grpc::Status status = call(channel, context);
  Attempt attempt;
  attempt.status = FromGrpc(status, options_.address, was_connected_);
  attempt.not_started = SaysNotStarted(status);
  if (!status.ok()) attempt.pushback_ms = PushbackFrom(context.GetServerTrailingMetadata());
  return attempt;
}

Attempt Client::TryUnary(const std::string& method, Duration remaining, const wire::Gathered& request,
                         grpc::ByteBuffer* answer) const {
  Loan loan;
  const grpc::ByteBuffer bytes = loan.Lend(request);
  return Try(remaining, [&](const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext& context) {
    return SendUnary(channel, method, &context, bytes, answer);
  });
}

absl::Status Client::DoUnary(const wire::RpcDescription& rpc, const google::protobuf::Message& request,
                             const CallOptions& options, google::protobuf::Message* response) {
  POSENC_RETURN_IF_ERROR(CheckMemory(request, options));
  POSENC_ASSIGN_OR_RETURN(const wire::Gathered bytes, wire::Gather(request, options.inputs));
  const bool in_place = wire::IsInPlace(request), writes_regions = wire::WritesRegions(request);
  grpc::ByteBuffer answer;
  POSENC_RETURN_IF_ERROR(
      Retry(options_.retry, options_.environment, options.timeout.value_or(options_.timeout), [&](Duration remaining) {
        Attempt attempt = TryUnary(rpc.path, remaining, bytes, &answer);
        // A call in place in shared memory overwrites its input. OVERLOADED alone does not say that it did not begin:
        // memory may run out during the work. A call that the server has not answered may still run, and write to its
        // regions when the next attempt has ended. An error without details is not the server's.
        const bool ended = DetailsOf(attempt.status).reason != "INTERNAL";
        attempt.repeatable = attempt.not_started || !writes_regions || (ended && !in_place);
        return attempt;
      }));
  // No retry from here on, because the outputs may have changed.
  if (answer.Length() == 0) return absl::InternalError(options_.address + " answered an empty message");
  return Receive(answer, options_.address, request, rpc.response_stripper, options, response);
}

absl::StatusOr<ServingStatus> Client::DoCheckHealth(const std::string& service, const CallOptions& options) {
  // grpc.health.v1's HealthCheckRequest { string service = 1 } and HealthCheckResponse { ServingStatus status = 1 }
  // have the wire format of protobuf's wrappers, so no copy of its proto file is needed.
  google::protobuf::StringValue request;
  request.set_value(service);
  POSENC_ASSIGN_OR_RETURN(const wire::Gathered bytes, wire::Gather(request, {}));
  grpc::ByteBuffer answer;
  const Attempt attempt =
      TryUnary("/grpc.health.v1.Health/Check", options.timeout.value_or(options_.timeout), bytes, &answer);
  POSENC_RETURN_IF_ERROR(attempt.status);
  static const wire::Stripper stripper(google::protobuf::Int32Value::descriptor());
  google::protobuf::Int32Value response;
  POSENC_RETURN_IF_ERROR(Receive(answer, options_.address, request, stripper, {}, &response));
  const int value = response.value();
  return value >= 0 && value <= 3 ? static_cast<ServingStatus>(value) : ServingStatus::kUnknown;
}

}  // namespace posenc
