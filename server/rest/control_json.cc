#include "server/rest/control_json.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "inference/service.pb.h"
#include "posenc/base/json_text.h"
#include "posenc/base/status.h"
#include "server/calls/messages.h"
#include "server/rest/json_fields.h"
#include "server/rest/message_json.h"

namespace posenc::server {
namespace {

using namespace inference;  // NOLINT: this file is about its messages
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::string_view kRequest = "Request";  // ends the name of each method's request
constexpr size_t kMostBody = size_t{64} << 10;

// Sets the fields of a request of this type.
template <typename Request>
using Read = absl::Status (*)(const PathNames& names, JsonFields* body, Request* request);
template <typename Response>
using Write = HttpAnswer (*)(const Response& response);

HttpAnswer Body(const ordered_json& json_body) { return {.body = JsonText(json_body)}; }

template <typename Request, typename Response>
ControlRoute Route(std::string_view verb, std::string pattern, Read<Request> read, Write<Response> write) {
  const auto read_bytes = [read](const PathNames& names, std::string_view body) -> absl::StatusOr<grpc::ByteBuffer> {
    if (body.size() > kMostBody) {
      return TooLarge(kWholeRequest, fmt::format("{} bytes", body.size()),
                      fmt::format("must be at most {}", kMostBody));
    }
    json tree = json::object();
    if (!body.empty()) {
      tree = nullptr;
      NumberArrays arrays{.key = "data", .max_values = 10'000};
      POSENC_RETURN_IF_ERROR(ParseJson(body, "", &arrays, &tree));
    }
    POSENC_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(tree, ""));
    Request request;
    POSENC_RETURN_IF_ERROR(read(names, &fields, &request));
    POSENC_RETURN_IF_ERROR(fields.RejectOthers());
    return SerializeMessage(request);
  };
  const auto write_bytes = [write](grpc::ByteBuffer bytes) -> absl::StatusOr<HttpAnswer> {
    Response response;
    const size_t size = bytes.Length();
    if (!ParseMessage(&bytes, size, &response)) return absl::InternalError("an answer that does not parse");
    return write(response);
  };
  const std::string& name = Request::descriptor()->name();
  return {verb, std::move(pattern), name.substr(0, name.size() - kRequest.size()), read_bytes, write_bytes};
}

template <typename Request>
absl::Status NoFields(const PathNames&, JsonFields*, Request*) {
  return absl::OkStatus();
}
template <typename Request>
absl::Status ModelFields(const PathNames& names, JsonFields*, Request* request) {
  request->set_name(names.model);
  request->set_version(names.version);
  return absl::OkStatus();
}
template <typename Request>
absl::Status RegionFields(const PathNames& names, JsonFields*, Request* request) {
  request->set_name(names.region);
  return absl::OkStatus();
}
template <typename Response>
HttpAnswer Nothing(const Response&) {
  return {};
}
template <typename Response>
HttpAnswer Same(const Response& response) {
  return Body(ToJson(response));
}

absl::Status ReadIndex(const PathNames&, JsonFields* body, RepositoryIndexRequest* request) {
  POSENC_ASSIGN_OR_RETURN(const bool ready, body->Flag("ready"));
  request->set_ready(ready);
  return absl::OkStatus();
}

// Parameters of loading and unloading: true or false, integers, text.
template <typename Request>
absl::Status ReadControl(const PathNames& names, JsonFields* body, Request* request) {
  request->set_model_name(names.model);
  POSENC_ASSIGN_OR_RETURN(const JsonFields parameters, body->Object("parameters"));
  for (const auto& [name, value] : parameters.entries()) {
    if (JsonFields::SetParameter(value, &(*request->mutable_parameters())[name])) continue;
    return parameters.Mismatch(name, "true or false, an integer or text");
  }
  return absl::OkStatus();
}

absl::Status ReadRegister(const PathNames& names, JsonFields* body, SystemSharedMemoryRegisterRequest* request) {
  request->set_name(names.region);
  POSENC_ASSIGN_OR_RETURN(*request->mutable_key(), body->Text("key"));
  POSENC_ASSIGN_OR_RETURN(const uint64_t offset, body->Unsigned("offset"));
  POSENC_ASSIGN_OR_RETURN(const uint64_t byte_size, body->Unsigned("byte_size"));
  request->set_offset(offset);
  request->set_byte_size(byte_size);
  return absl::OkStatus();
}

absl::Status ReadCudaRegister(const PathNames& names, JsonFields* body, CudaSharedMemoryRegisterRequest* request) {
  request->set_name(names.region);
  for (const char* ignored : {"raw_handle", "device_id", "byte_size"}) body->Find(ignored);  // no GPU's memory is taken
  return absl::OkStatus();
}

// The values of a map, in the order of the keys.
template <typename Response>
HttpAnswer Regions(const Response& response) {
  ordered_json list = ordered_json::array();
  const ordered_json all = ToJson(response);
  for (const auto& region : all["regions"]) list.push_back(region);
  return Body(list);
}

std::vector<ControlRoute> MakeRoutes() {
  const auto server_ready = [](const ServerReadyResponse& response) {
    HttpAnswer answer = Body(ToJson(response));
    answer.status = response.ready() ? 200 : 503;
    return answer;
  };
  const auto ready = [](const ModelMetadataResponse& response) {
    return Body({{"name", response.name()}, {"ready", true}});
  };
  const auto config = [](const ModelConfigResponse& response) { return Body(ToJson(response.config())); };
  const auto index = [](const RepositoryIndexResponse& response) { return Body(ToJson(response)["models"]); };
  const auto models = [](const RepositoryIndexResponse& response) {
    ordered_json names = ordered_json::array();
    for (const auto& model : response.models()) names.push_back(model.name());
    return Body({{"models", names}});
  };
  const auto read_ready = [](const PathNames&, JsonFields*, RepositoryIndexRequest* request) {
    request->set_ready(true);
    return absl::OkStatus();
  };
  std::vector<ControlRoute> routes = {
      Route<ServerLiveRequest, ServerLiveResponse>("GET", "/v2/health/live", NoFields, Same),
      Route<ServerReadyRequest, ServerReadyResponse>("GET", "/v2/health/ready", NoFields, server_ready),
      Route<ServerMetadataRequest, ServerMetadataResponse>("GET", "/v2", NoFields, Same),
      Route<RepositoryIndexRequest, RepositoryIndexResponse>("GET", "/v2/models", read_ready, models),
      Route<ModelStatisticsRequest, ModelStatisticsResponse>("GET", "/v2/models/stats", NoFields, Same),
      // ModelMetadata says why a model is not ready; ModelReady would not.
      Route<ModelMetadataRequest, ModelMetadataResponse>("GET", "/v2/models/{model}/ready", ModelFields, ready),
      Route<ModelMetadataRequest, ModelMetadataResponse>("GET", "/v2/models/{model}", ModelFields, Same),
      Route<ModelConfigRequest, ModelConfigResponse>("GET", "/v2/models/{model}/config", ModelFields, config),
      Route<ModelStatisticsRequest, ModelStatisticsResponse>("GET", "/v2/models/{model}/stats", ModelFields, Same),
      Route<RepositoryIndexRequest, RepositoryIndexResponse>("POST", "/v2/repository/index", ReadIndex, index),
      Route<RepositoryModelLoadRequest, RepositoryModelLoadResponse>("POST", "/v2/repository/models/{model}/load",
                                                                     ReadControl, Nothing),
      Route<RepositoryModelUnloadRequest, RepositoryModelUnloadResponse>("POST", "/v2/repository/models/{model}/unload",
                                                                         ReadControl, Nothing),
      Route<SystemSharedMemoryRegisterRequest, SystemSharedMemoryRegisterResponse>(
          "POST", "/v2/systemsharedmemory/region/{region}/register", ReadRegister, Nothing),
      Route<CudaSharedMemoryRegisterRequest, CudaSharedMemoryRegisterResponse>(
          "POST", "/v2/cudasharedmemory/region/{region}/register", ReadCudaRegister, Nothing)};
  // Of one region, and of all.
  for (const std::string of : {"/region/{region}", ""}) {
    const std::string system = "/v2/systemsharedmemory" + of, cuda = "/v2/cudasharedmemory" + of;
    routes.push_back(Route<SystemSharedMemoryStatusRequest, SystemSharedMemoryStatusResponse>("GET", system + "/status",
                                                                                              RegionFields, Regions));
    routes.push_back(Route<SystemSharedMemoryUnregisterRequest, SystemSharedMemoryUnregisterResponse>(
        "POST", system + "/unregister", RegionFields, Nothing));
    routes.push_back(Route<CudaSharedMemoryStatusRequest, CudaSharedMemoryStatusResponse>("GET", cuda + "/status",
                                                                                          RegionFields, Regions));
    routes.push_back(Route<CudaSharedMemoryUnregisterRequest, CudaSharedMemoryUnregisterResponse>(
        "POST", cuda + "/unregister", RegionFields, Nothing));
  }
  return routes;
}

}  // namespace

const std::vector<ControlRoute>& ControlRoutes() {
  static const auto* const routes = new std::vector<ControlRoute>(MakeRoutes());
  return *routes;
}

}  // namespace posenc::server
