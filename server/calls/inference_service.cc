#include "server/calls/inference_service.h"

#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/base/version.h"
#include "posenc/wire/answer.h"
#include "server/calls/calls.h"
#include "server/core/refusal.h"
#include "server/oip/infer_request.h"
#include "server/oip/metadata.h"
#include "server/oip/parse.h"

namespace posenc::server {
namespace {

using wire::Scheduling;

template <typename Request, typename Response>
using AnswerControl = absl::Status (*)(const InferenceParts& parts, const Request& request, const Rpc& rpc,
                                       Response* response);

// Method whose answer is a message without tensors.
template <typename Request, typename Response>
UnaryMethod Control(const InferenceParts* parts, const std::string& name, Scheduling scheduling,
                    AnswerControl<Request, Response> answer) {
  const auto read = [parts, answer](const std::string& stripped, int64_t, Call* call,
                                    Prepared* prepared) -> absl::StatusOr<UnaryMethod::Prepare> {
    auto* const request = Request::default_instance().New(&prepared->arena);
    POSENC_RETURN_IF_ERROR(ParseInference(stripped, request));
    return [parts, answer, request, call, prepared](const wire::CallContext&) -> absl::Status {
      auto* const response = Response::default_instance().New(&prepared->arena);
      prepared->response = response;
      POSENC_RETURN_IF_ERROR(answer(*parts, *request, call->rpc(), response));
      POSENC_ASSIGN_OR_RETURN(prepared->layout, wire::Answer::LayOut(response, {}));
      return absl::OkStatus();
    };
  };
  return {InferenceRpc(name), scheduling, read};
}

absl::Status ServerLive(const InferenceParts&, const inference::ServerLiveRequest&, const Rpc&,
                        inference::ServerLiveResponse* response) {
  response->set_live(true);
  return absl::OkStatus();
}

absl::Status ServerReady(const InferenceParts& parts, const inference::ServerReadyRequest&, const Rpc&,
                         inference::ServerReadyResponse* response) {
  response->set_ready(parts.is_ready());
  return absl::OkStatus();
}

absl::Status ServerMetadata(const InferenceParts& parts, const inference::ServerMetadataRequest&, const Rpc&,
                            inference::ServerMetadataResponse* response) {
  response->set_name("posenc");
  response->set_version(kVersion);
  for (const char* extension : {"model_configuration", "statistics", "model_repository"}) {
    response->add_extensions(extension);
  }
  if (parts.memory->is_on()) response->add_extensions("system_shared_memory");
  return absl::OkStatus();
}

// A model that cannot be served, or that there is not, is not ready; Triton gives no error for it either.
absl::Status ModelReady(const InferenceParts& parts, const inference::ModelReadyRequest& request, const Rpc&,
                        inference::ModelReadyResponse* response) {
  const auto model = ModelOf(*parts.models, request.name(), request.version());
  if (absl::IsInvalidArgument(model.status())) return model.status();
  response->set_ready(model.ok());
  return absl::OkStatus();
}

absl::Status ModelMetadata(const InferenceParts& parts, const inference::ModelMetadataRequest& request, const Rpc&,
                           inference::ModelMetadataResponse* response) {
  POSENC_ASSIGN_OR_RETURN(const auto model, ModelOf(*parts.models, request.name(), request.version()));
  DescribeModel(*model, response);
  return absl::OkStatus();
}

absl::Status ModelConfig(const InferenceParts& parts, const inference::ModelConfigRequest& request, const Rpc&,
                         inference::ModelConfigResponse* response) {
  POSENC_ASSIGN_OR_RETURN(const auto model, ModelOf(*parts.models, request.name(), request.version()));
  DescribeModel(*model, response->mutable_config());
  return absl::OkStatus();
}

absl::Status ModelStatistics(const InferenceParts& parts, const inference::ModelStatisticsRequest& request, const Rpc&,
                             inference::ModelStatisticsResponse* response) {
  if (!request.name().empty()) {
    POSENC_ASSIGN_OR_RETURN(const auto model, ModelOf(*parts.models, request.name(), request.version()));
    DescribeModel(*model, response->add_model_stats());
    return absl::OkStatus();
  }
  const auto all = parts.models->All();  // kept while it is listed, whatever changes meanwhile
  for (const auto& [name, model] : *all) {
    if (model->ready()) DescribeModel(*model, response->add_model_stats());
  }
  return absl::OkStatus();
}

absl::Status RepositoryIndex(const InferenceParts& parts, const inference::RepositoryIndexRequest& request, const Rpc&,
                             inference::RepositoryIndexResponse* response) {
  const auto all = parts.models->All();  // kept while it is listed, whatever changes meanwhile
  for (const auto& [name, model] : *all) {
    if (model->ready() || !request.ready()) DescribeModel(*model, response->add_models());
  }
  return absl::OkStatus();
}

absl::Status CheckControl(const InferenceParts& parts) {
  if (parts.core->config.model_control == "on") return absl::OkStatus();
  return Refusal(absl::StatusCode::kUnavailable, "UNSUPPORTED", "model_name", "",
                 "must not be loaded or unloaded by calls: the server has --model-control off");
}

// The parameters by name, so that of several errors the caller always gets the same.
std::map<std::string, inference::ModelRepositoryParameter> InOrder(
    const google::protobuf::Map<std::string, inference::ModelRepositoryParameter>& parameters) {
  return {parameters.begin(), parameters.end()};
}

absl::Status RepositoryModelLoad(const InferenceParts& parts, const inference::RepositoryModelLoadRequest& request,
                                 const Rpc&, inference::RepositoryModelLoadResponse*) {
  POSENC_RETURN_IF_ERROR(CheckControl(parts));
  if (!request.parameters().empty()) {
    return InvalidArgument("UNSUPPORTED", "parameters", InOrder(request.parameters()).begin()->first,
                           "must be absent: a model's files are those of the repository");
  }
  return parts.models->Load(request.model_name());
}

absl::Status RepositoryModelUnload(const InferenceParts& parts, const inference::RepositoryModelUnloadRequest& request,
                                   const Rpc&, inference::RepositoryModelUnloadResponse*) {
  POSENC_RETURN_IF_ERROR(CheckControl(parts));
  for (const auto& [name, value] : InOrder(request.parameters())) {
    if (name != "unload_dependents") {
      return InvalidArgument("UNKNOWN_VALUE", "parameters", name, "must be unload_dependents");
    }
    // No model depends on another.
    if (!value.has_bool_param()) return InvalidArgument("MISMATCH", name, "", "must be true or false");
  }
  return parts.models->Unload(request.model_name());
}

absl::Status CheckLocal(const Rpc& rpc) {
  if (rpc.is_local()) return absl::OkStatus();
  return Refusal(absl::StatusCode::kPermissionDenied, "NOT_ALLOWED", kWholeRequest, "",
                 "must be sent from the server's host");
}

absl::Status SystemStatus(const InferenceParts& parts, const inference::SystemSharedMemoryStatusRequest& request,
                          const Rpc& rpc, inference::SystemSharedMemoryStatusResponse* response) {
  POSENC_RETURN_IF_ERROR(CheckLocal(rpc));
  POSENC_ASSIGN_OR_RETURN(const auto regions, parts.memory->List(MemoryScopeOf(rpc), request.name()));
  for (const NamedMemory::Region& region : regions) {
    auto& status = (*response->mutable_regions())[region.name];
    status.set_name(region.name);
    status.set_key(region.key);
    status.set_offset(region.offset);
    status.set_byte_size(region.byte_size);
  }
  return absl::OkStatus();
}

absl::Status SystemRegister(const InferenceParts& parts, const inference::SystemSharedMemoryRegisterRequest& request,
                            const Rpc& rpc, inference::SystemSharedMemoryRegisterResponse*) {
  POSENC_RETURN_IF_ERROR(CheckLocal(rpc));
  return parts.memory->Register(MemoryScopeOf(rpc),
                                {request.name(), request.key(), request.offset(), request.byte_size(), ""});
}

absl::Status SystemUnregister(const InferenceParts& parts,
                              const inference::SystemSharedMemoryUnregisterRequest& request, const Rpc& rpc,
                              inference::SystemSharedMemoryUnregisterResponse*) {
  // A caller on another host has none.
  return rpc.is_local() ? parts.memory->Unregister(MemoryScopeOf(rpc), request.name()) : absl::OkStatus();
}

absl::Status CudaStatus(const InferenceParts&, const inference::CudaSharedMemoryStatusRequest& request, const Rpc&,
                        inference::CudaSharedMemoryStatusResponse*) {
  if (request.name().empty()) return absl::OkStatus();
  return NotFound("name", request.name(), "must be absent: memory of GPUs cannot be registered by name");
}

absl::Status CudaRegister(const InferenceParts&, const inference::CudaSharedMemoryRegisterRequest& request, const Rpc&,
                          inference::CudaSharedMemoryRegisterResponse*) {
  return InvalidArgument("UNSUPPORTED", "name", request.name(),
                         "must not be memory of a GPU, which cannot be registered by name");
}

absl::Status CudaUnregister(const InferenceParts&, const inference::CudaSharedMemoryUnregisterRequest&, const Rpc&,
                            inference::CudaSharedMemoryUnregisterResponse*) {
  return absl::OkStatus();
}

// Adds methods to the server's.
struct Adder {
  Methods* methods;
  std::shared_ptr<const InferenceParts> parts;

  void Add(UnaryMethod method, std::optional<Right> right) const {
    Method& added = (*methods)[method.rpc.path];
    added.right = right;
    added.admits = method.scheduling != Scheduling::kImmediate;
    added.make = [core = parts->core, parts = parts, method = std::move(method)](Rpc* rpc, grpc::ByteBuffer* request) {
      return MakeUnaryCall(core, method, rpc, request);
    };
  }

  template <typename Request, typename Response>
  void Control(const std::string& name, std::optional<Right> right, AnswerControl<Request, Response> answer,
               Scheduling scheduling = Scheduling::kImmediate) const {
    Add(server::Control(parts.get(), name, scheduling, answer), right);
  }
};

}  // namespace

const std::vector<wire::RpcDescription>& InferenceRpcs() {
  static const auto* const rpcs = [] {
    const auto& request = *inference::ModelInferRequest::descriptor();
    const auto* raw = request.FindFieldByNumber(inference::ModelInferRequest::kRawInputContentsFieldNumber);
    const auto& service = *request.file()->FindServiceByName("GRPCInferenceService");
    auto* all = new std::vector<wire::RpcDescription>;
    for (int n = 0; n < service.method_count(); ++n) {
      const auto& method = *service.method(n);
      all->push_back(wire::DescribeRpc(method, method.input_type() == &request ? raw : nullptr));
    }
    return all;
  }();
  return *rpcs;
}

const wire::RpcDescription& InferenceRpc(const std::string& name) {
  for (const wire::RpcDescription& rpc : InferenceRpcs()) {
    if (rpc.name == name) return rpc;
  }
  std::abort();
}

void AddInferenceTo(Methods* methods, const std::shared_ptr<const InferenceParts>& parts) {
  const Adder adder{methods, parts};
  adder.Control("ServerLive", std::nullopt, &ServerLive);
  adder.Control("ServerReady", std::nullopt, &ServerReady);
  adder.Control("ServerMetadata", Right::kInfo, &ServerMetadata);
  adder.Control("ModelReady", Right::kInfo, &ModelReady);
  adder.Control("ModelMetadata", Right::kInfo, &ModelMetadata);
  adder.Control("ModelConfig", Right::kInfo, &ModelConfig);
  // With many models these answers are large, so that they are admitted and charged.
  adder.Control("ModelStatistics", Right::kInfo, &ModelStatistics, Scheduling::kPreparesQuickly);
  adder.Control("RepositoryIndex", Right::kInfo, &RepositoryIndex, Scheduling::kPreparesQuickly);
  adder.Control("RepositoryModelLoad", Right::kModels, &RepositoryModelLoad, Scheduling::kReadsFiles);
  adder.Control("RepositoryModelUnload", Right::kModels, &RepositoryModelUnload, Scheduling::kPooled);
  adder.Control("SystemSharedMemoryStatus", Right::kSharedMemory, &SystemStatus, Scheduling::kPreparesQuickly);
  adder.Control("SystemSharedMemoryRegister", Right::kSharedMemory, &SystemRegister, Scheduling::kPooled);
  adder.Control("SystemSharedMemoryUnregister", Right::kSharedMemory, &SystemUnregister, Scheduling::kPooled);
  adder.Control("CudaSharedMemoryStatus", Right::kSharedMemory, &CudaStatus);
  adder.Control("CudaSharedMemoryRegister", Right::kSharedMemory, &CudaRegister);
  adder.Control("CudaSharedMemoryUnregister", Right::kSharedMemory, &CudaUnregister);
  adder.Add(InferMethod(parts.get(), InferRpc::kUnary), Right::kCompute);
  Method& stream = (*methods)[InferenceRpc("ModelStreamInfer").path];
  stream.right = Right::kStream;
  stream.reads_first = false;
  stream.admits = false;  // its messages are admitted
  stream.make = [parts](Rpc* rpc, grpc::ByteBuffer*) { return MakeInferStream(parts.get(), rpc); };
}

}  // namespace posenc::server
