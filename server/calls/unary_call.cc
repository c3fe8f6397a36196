#include "server/calls/calls.h"

#include <memory>
#include <utility>

#include "posenc/base/status.h"
#include "posenc/wire/answer.h"
#include "server/calls/unary_step.h"

namespace posenc::server {
namespace {

class UnaryCall final : public Reactor {
 public:
  UnaryCall(Core* core, UnaryMethod method, Rpc* rpc, grpc::ByteBuffer* request)
      : rpc_(rpc), step_(core, std::move(method), rpc, request, [this](const absl::Status& status) { End(status); }) {}

  void Start() override {
    step_.call().TracePhases();
    step_.Start();
  }

 private:
  void End(const absl::Status& status) {
    const grpc::Status sent = step_.call().End(status);
    if (!sent.ok()) return rpc_->Finish(sent);
    rpc_->WriteAndFinish(step_.TakeAnswer());
  }

  Rpc* const rpc_;
  UnaryStep step_;
};

UnaryMethod MethodOf(const wire::UnaryOperation& operation) {
  const auto read = [&operation](const std::string& stripped, int64_t, Call* call,
                                 Prepared* prepared) -> absl::StatusOr<UnaryMethod::Prepare> {
    prepared->request = operation.rpc.request.New(&prepared->arena);
    POSENC_RETURN_IF_ERROR(call->Parse(stripped, prepared->request));
    return [&operation, call, prepared](const wire::CallContext& context) -> absl::Status {
      prepared->response = operation.rpc.response.New(&prepared->arena);
      POSENC_ASSIGN_OR_RETURN(prepared->job,
                              operation.prepare(*prepared->request, call->payloads(), context, prepared->response));
      if (prepared->job.decide) return absl::OkStatus();
      POSENC_ASSIGN_OR_RETURN(prepared->layout, wire::Answer::LayOut(prepared->response, prepared->job.outputs));
      return absl::OkStatus();
    };
  };
  const auto key = [&operation](const Rpc&) {
    return std::shared_ptr<const void>(std::shared_ptr<void>(), &operation.rpc);
  };
  return {operation.rpc, operation.scheduling, read, key};
}

}  // namespace

std::unique_ptr<Reactor> MakeUnaryCall(Core* core, UnaryMethod method, Rpc* rpc, grpc::ByteBuffer* request) {
  return std::make_unique<UnaryCall>(core, std::move(method), rpc, request);
}

std::unique_ptr<Reactor> MakeUnaryCall(Core* core, const wire::UnaryOperation& operation, Rpc* rpc,
                                       grpc::ByteBuffer* request) {
  return MakeUnaryCall(core, MethodOf(operation), rpc, request);
}

}  // namespace posenc::server
