#include "server/grpc/service.h"

#include <memory>
#include <string>
#include <utility>

#include "posenc/service/operations.h"
#include "posenc/v1/service.pb.h"
#include "server/grpc/calls.h"

namespace posenc::server {
namespace {

void Describe(const Config& config, const SharedMemoryRegistry& memory, v1::GetServerInfoResponse* response) {
  response->mutable_limits()->set_max_regions(config.max_regions);
  response->mutable_limits()->set_max_region_bytes(config.max_region_bytes);
  const SharedMemoryRegistry::Counters counters = memory.counters();
  response->mutable_counters()->set_regions(counters.regions);
  response->mutable_counters()->set_region_bytes(counters.bytes);
}

void Describe(const CacheCounters& counters, v1::CacheCounters* message) {
  message->set_hits(counters.hits);
  message->set_misses(counters.misses);
  message->set_bytes(counters.bytes);
}

absl::StatusOr<wire::Job> Describe(const Core& core, const ServerDevices& devices,
                                   v1::GetServerInfoResponse* response) {
  wire::DescribeLibrary(core.config.limits, response);
  v1::Device* device = response->add_devices();
  device->set_name("cpu");
  device->set_threads(static_cast<int32_t>(core.pool.threads()));
  devices.Describe(response);
  response->mutable_limits()->set_max_in_flight_bytes(core.config.max_in_flight_bytes);
  response->mutable_limits()->set_max_in_flight_requests(core.config.max_in_flight_requests);
  const Admission::Counters counters = core.admission->counters();
  response->mutable_counters()->set_requests_started(counters.started);
  response->mutable_counters()->set_requests_failed(counters.failed);
  response->mutable_counters()->set_requests_refused(counters.refused);
  response->mutable_counters()->set_in_flight_requests(counters.in_flight_requests);
  response->mutable_counters()->set_in_flight_bytes(counters.in_flight_bytes);
  Describe(PlanCache().counters(), response->mutable_counters()->mutable_plan_cache());
  Describe(TableCache().counters(), response->mutable_counters()->mutable_table_cache());
  const BufferPool::Counters answers = core.buffer_pool->counters();
  v1::PoolCounters& pool = *response->mutable_counters()->mutable_answer_pool();
  pool.set_reused(answers.reused);
  pool.set_allocated(answers.allocated);
  pool.set_bytes(answers.bytes);
  return wire::Job();
}

// Adds the service's methods one by one.
class Service {
 public:
  Service(Core* core, Methods* methods) : core_(core), methods_(methods) {}

  void AddUnary(UnaryMethod method) {
    auto shared = std::make_shared<const UnaryMethod>(std::move(method));
    Add(shared->name).make = [core = core_, shared](Rpc* rpc, grpc::ByteBuffer* request) {
      return MakeUnaryCall(core, *shared, rpc, request);
    };
  }

  // Returns a method whose job comes from wire::Prepare().
  template <typename Request, typename Response>
  static UnaryMethod Prepared(std::string_view name) {
    return UnaryMethod::Of<Request, Response>(
        name, [](const Request& request, const wire::Payloads& payloads, const Limits& limits, Response* response) {
          return wire::Prepare(request, payloads, limits, response);
        });
  }
  template <typename Request, typename Response>
  void AddUnary(std::string_view name) {
    AddUnary(Prepared<Request, Response>(name));
  }
  template <typename Request, typename Response>
  void AddQuickUnary(std::string_view name) {
    UnaryMethod method = Prepared<Request, Response>(name);
    method.prepares_quickly = true;
    AddUnary(std::move(method));
  }

  template <typename Request, typename Response>
  void AddTiles(std::string_view name) {
    auto shared = std::make_shared<const TileMethod>(TileMethod::Of<Request, Response>(name));
    Add(name).make = [core = core_, shared](Rpc* rpc, grpc::ByteBuffer* request) {
      return MakeTileStream(core, *shared, rpc, request);
    };
  }

  void AddRotaryStream() {
    auto stripper = std::make_shared<const wire::Stripper>(v1::StreamApplyRotaryRequest::descriptor());
    Method& method = Add("StreamApplyRotary");
    method.reads_first = false;
    method.make = [core = core_, stripper](Rpc* rpc, grpc::ByteBuffer*) {
      return MakeRotaryStream(core, *stripper, rpc);
    };
  }

 private:
  Method& Add(std::string_view name) { return (*methods_)["/" + std::string(kServiceName) + "/" + std::string(name)]; }

  Core* const core_;
  Methods* const methods_;
};

UnaryMethod GetServerInfoMethod(const Core* core, const SharedMemoryRegistry* memory, const ServerDevices* devices) {
  UnaryMethod method = UnaryMethod::Of<v1::GetServerInfoRequest, v1::GetServerInfoResponse>(
      "GetServerInfo", [core, memory, devices](const v1::GetServerInfoRequest&, const wire::Payloads&, const Limits&,
                                               v1::GetServerInfoResponse* response) {
        if (memory != nullptr) Describe(core->config, *memory, response);
        return Describe(*core, *devices, response);
      });
  method.immediate = true;
  return method;
}

UnaryMethod ApplyRotaryMethod() {
  auto method = Service::Prepared<v1::ApplyRotaryRequest, v1::ApplyRotaryResponse>("ApplyRotary");
  method.prepares_quickly = method.as_small_as_its_request = true;
  return method;
}

}  // namespace

void AddServiceTo(Methods* methods, Core* core, const SharedMemoryRegistry* memory, const ServerDevices* devices) {
  Service service(core, methods);
  service.AddUnary(GetServerInfoMethod(core, memory, devices));
  service.AddUnary<v1::ExplainRequest, v1::ExplainResponse>("Explain");
  service.AddUnary<v1::AnalyzeRequest, v1::AnalyzeResponse>("Analyze");
  service.AddUnary(ApplyRotaryMethod());
  service.AddRotaryStream();
  service.AddQuickUnary<v1::GenerateTableRequest, v1::GenerateTableResponse>("GenerateTable");
  service.AddTiles<v1::StreamTableRequest, v1::StreamTableResponse>("StreamTable");
  service.AddQuickUnary<v1::GenerateEmbeddingRequest, v1::GenerateEmbeddingResponse>("GenerateEmbedding");
  service.AddQuickUnary<v1::GenerateBiasRequest, v1::GenerateBiasResponse>("GenerateBias");
  service.AddTiles<v1::StreamBiasRequest, v1::StreamBiasResponse>("StreamBias");
  service.AddQuickUnary<v1::AddBiasRequest, v1::AddBiasResponse>("AddBias");
  service.AddUnary<v1::RelativeScoresRequest, v1::RelativeScoresResponse>("RelativeScores");
  service.AddUnary<v1::RelativeValuesRequest, v1::RelativeValuesResponse>("RelativeValues");
  service.AddUnary<v1::DiagnoseRequest, v1::DiagnoseResponse>("Diagnose");
  service.AddUnary<v1::DiagnoseBiasRequest, v1::DiagnoseBiasResponse>("DiagnoseBias");
}

}  // namespace posenc::server
