#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/arena.h"
#include "posenc/base/status.h"
#include "posenc/service/hints.h"
#include "server/calls/inference_service.h"
#include "server/oip/infer_request.h"
#include "server/oip/parse.h"
#include "server/oip/wording.h"

namespace posenc::server {
namespace {

using inference::ModelInferRequest;

// One request of ModelInfer. Its messages are in Prepared's arena.
class Inference {
 public:
  Inference(const InferenceParts* parts, InferRpc rpc, int64_t most_values, Call* call, Prepared* prepared)
      : parts_(parts), rpc_(rpc), most_values_(most_values), call_(call), prepared_(prepared) {}

  absl::Status Read(const std::string& stripped) {
    auto* request = ModelInferRequest::default_instance().New(&prepared_->arena);
    request_ = request;
    POSENC_RETURN_IF_ERROR(ParseInference(stripped, request));
    POSENC_RETURN_IF_ERROR(RejectUnknownFieldsOfTensors(*request));
    if (request->id().size() > kMostIdBytes) {
      return InvalidArgument("OUT_OF_RANGE", "id", request->id(),
                             absl::StrCat("must have at most ", kMostIdBytes, " bytes"));
    }
    POSENC_ASSIGN_OR_RETURN(model_, ModelOf(*parts_->models, request->model_name(), request->model_version()));
    prepared_->on_end = [counters = model_->counters](const absl::Status& status, std::chrono::nanoseconds queued,
                                                      std::chrono::nanoseconds computed) {
      counters->Count(status.ok(), queued, computed);
    };
    call_->Observe(prepared_->on_end);
    prepared_->model = model_->name;
    call_->SetModel(model_->name);
    if (!request->id().empty()) {  // TakeId() has left it
      call_->SetRequestId(request->id());
      prepared_->only_once = true;
    }
    prepared_->request = encoding().operation.rpc.request.New(&prepared_->arena);
    bool has_regions = false;
    POSENC_RETURN_IF_ERROR(ReadInferRequest(*request, *model_, Context(), prepared_->request, &has_regions));
    POSENC_RETURN_IF_ERROR(
        InWordsOf(encoding(), *prepared_->request, wire::CheckHints(*prepared_->request, parts_->core->devices)));
    return Accept(has_regions);
  }

  absl::Status Prepare(const wire::CallContext& context) {
    const wire::UnaryOperation& operation = encoding().operation;
    if (!context.may_block() && operation.scheduling != wire::Scheduling::kAsSmallAsItsRequest) return WouldBlock();
    prepared_->response = operation.rpc.response.New(&prepared_->arena);
    auto job = operation.prepare(*prepared_->request, call_->payloads(), context, prepared_->response);
    if (!job.ok()) return InWordsOf(encoding(), *prepared_->request, job.status());
    prepared_->job = *std::move(job);
    bool has_regions = false;
    POSENC_RETURN_IF_ERROR(PlaceOutputs(*request_, encoding(), Context(), *prepared_->response, prepared_->job.outputs,
                                        prepared_->request, &has_regions));
    if (has_regions) POSENC_RETURN_IF_ERROR(Accept(true));
    POSENC_ASSIGN_OR_RETURN(prepared_->layout,
                            LayOutInfer(*request_, *model_, *prepared_->response, prepared_->job.outputs, rpc_));
    return absl::OkStatus();
  }

 private:
  const Encoding& encoding() const { return *model_->encoding; }

  InferContext Context() const {
    const auto add_bytes = [this](std::string bytes) {
      prepared_->only_once = true;
      return call_->payloads().Add(std::move(bytes));
    };
    return {*parts_->models, *parts_->memory, MemoryScopeOf(call_->rpc()), add_bytes, most_values_};
  }

  absl::Status Accept(bool has_regions) {
    return InWordsOf(encoding(), *prepared_->request,
                     call_->Accept(*prepared_->request, call_->request_id(), has_regions));
  }

  const InferenceParts* const parts_;
  const InferRpc rpc_;
  const int64_t most_values_;
  Call* const call_;
  Prepared* const prepared_;
  const ModelInferRequest* request_ = nullptr;
  std::shared_ptr<const Model> model_;
};

}  // namespace

std::string MemoryScopeOf(const Rpc& rpc) {
  if (!rpc.is_local()) return "";
  if (rpc.identity() != nullptr) return "identity " + rpc.identity()->name;
  const std::string connection = rpc.connection();
  return connection.empty() ? "unix" : "address " + connection.substr(0, connection.rfind(':'));
}

UnaryMethod InferMethod(const InferenceParts* parts, InferRpc rpc) {
  const auto read = [parts, rpc](const std::string& stripped, int64_t most_values, Call* call,
                                 Prepared* prepared) -> absl::StatusOr<UnaryMethod::Prepare> {
    const auto inference = std::make_shared<Inference>(parts, rpc, most_values, call, prepared);
    POSENC_RETURN_IF_ERROR(inference->Read(stripped));
    return [inference](const wire::CallContext& context) { return inference->Prepare(context); };
  };
  const bool unary = rpc == InferRpc::kUnary;
  const auto key = [parts, unary](const Rpc& caller) {
    return parts->keys->Find(
        {parts->models->All(), !unary, parts->memory->changes(), parts->memory->is_on() ? MemoryScopeOf(caller) : ""});
  };
  return {InferenceRpc(unary ? "ModelInfer" : "ModelStreamInfer"),
          wire::Scheduling::kAsSmallAsItsRequest,
          read,
          key,
          &TakeId,
          unary ? &WithId : &WithIdInStream};
}

}  // namespace posenc::server
