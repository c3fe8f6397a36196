#include "server/grpc/otlp_exporter.h"

#include <mutex>
#include <utility>

#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.grpc.pb.h"
#include "server/trace/otlp_message.h"

namespace posenc::server {
namespace {

using opentelemetry::proto::collector::trace::v1::ExportTraceServiceResponse;
using opentelemetry::proto::collector::trace::v1::TraceService;

constexpr int kMostAnswerBytes = 64 << 10;
constexpr int kReconnectMs = 5'000;  // at most between two tries to connect

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const TraceSettings& settings) {
  if (!settings.is_secure) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = settings.root_certificates,
                               .pem_private_key = settings.client_key,
                               .pem_cert_chain = settings.client_certificate});
}

std::shared_ptr<grpc::Channel> ChannelOf(const TraceSettings& settings) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMostAnswerBytes);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMs);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);  // the tracer tries again
  // Otherwise gRPC would share connections with channels of the same target and arguments.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  if (settings.is_compressed) arguments.SetCompressionAlgorithm(GRPC_COMPRESS_GZIP);
  return grpc::CreateCustomChannel(settings.target, CredentialsOf(settings), arguments);
}

// True for the codes that OTLP's specification calls retryable.
bool IsRetryable(grpc::StatusCode code) {
  switch (code) {
    case grpc::CANCELLED:
    case grpc::DEADLINE_EXCEEDED:
    case grpc::ABORTED:
    case grpc::OUT_OF_RANGE:
    case grpc::UNAVAILABLE:
    case grpc::DATA_LOSS: return true;
    default: return false;
  }
}

class OtlpExporter final : public SpanExporter {
 public:
  explicit OtlpExporter(const TraceSettings& settings)
      : resource_(settings.resource), headers_(settings.headers), stub_(TraceService::NewStub(ChannelOf(settings))) {}

  Result Export(absl::Span<const std::unique_ptr<CallSpan>> calls, std::chrono::milliseconds time) override {
    const ExportRequest request = ToOtlp(calls, resource_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + time);
    for (const auto& [name, value] : headers_) context.AddMetadata(name, value);
    const auto end = [this](grpc::ClientContext*) { Begin(nullptr); };
    const std::unique_ptr<grpc::ClientContext, decltype(end)> running(&context, end);
    if (!Begin(&context)) return {Outcome::kUnavailable, 0, "the server ends"};
    ExportTraceServiceResponse response;
    const grpc::Status status = stub_->Export(&context, request, &response);
    if (status.ok()) {
      return {Outcome::kAccepted, response.partial_success().rejected_spans(),
              response.partial_success().error_message()};
    }
    return {IsRetryable(status.error_code()) ? Outcome::kUnavailable : Outcome::kRejected, 0, status.error_message()};
  }

  void Cancel() override {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }

 private:
  bool Begin(grpc::ClientContext* context) {
    const std::lock_guard lock(mutex_);
    context_ = context;
    return !is_cancelled_;
  }

  const TraceSettings::Pairs resource_, headers_;
  const std::unique_ptr<TraceService::Stub> stub_;
  std::mutex mutex_;
  grpc::ClientContext* context_ = nullptr;  // of the export that runs; guarded by mutex_, as is_cancelled_
  bool is_cancelled_ = false;
};

}  // namespace

std::unique_ptr<SpanExporter> MakeOtlpExporter(const TraceSettings& settings) {
  return std::make_unique<OtlpExporter>(settings);
}

}  // namespace posenc::server
