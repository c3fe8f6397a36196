#include "server/service.h"

#include "server/rotary_stream.h"
#include "wire/operations.h"

namespace posenc::server {
namespace {

// A method whose work is wire::Prepare's.
template <typename Request, typename Response>
UnaryMethod Method(std::string_view name) {
  return UnaryMethod::Of<Request, Response>(
      name, [](const Request& request, const wire::Payloads& payloads, const Limits& limits, Response* response) {
        return wire::Prepare(request, payloads, limits, response);
      });
}

void Describe(const Config& config, const SharedMemoryRegistry& memory, v1::GetServerInfoResponse* response) {
  response->mutable_limits()->set_max_regions(config.max_regions);
  response->mutable_limits()->set_max_region_bytes(config.max_region_bytes);
  const SharedMemoryRegistry::Counters counters = memory.counters();
  response->mutable_counters()->set_regions(counters.regions);
  response->mutable_counters()->set_region_bytes(counters.bytes);
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
  const CacheCounters plans = PlanCache().counters();
  v1::CacheCounters& cache = *response->mutable_counters()->mutable_plan_cache();
  cache.set_hits(plans.hits);
  cache.set_misses(plans.misses);
  cache.set_bytes(plans.bytes);
  const AnswerPool::Counters answers = core.answer_pool->counters();
  v1::PoolCounters& pool = *response->mutable_counters()->mutable_answer_pool();
  pool.set_reused(answers.reused);
  pool.set_allocated(answers.allocated);
  pool.set_bytes(answers.bytes);
  return wire::Job();
}

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
  auto method = Method<v1::ApplyRotaryRequest, v1::ApplyRotaryResponse>("ApplyRotary");
  method.as_small_as_its_request = true;
  return method;
}

}  // namespace

Service::Service(Core* core, const SharedMemoryRegistry* memory, const ServerDevices* devices)
    : core_(core),
      get_server_info_(GetServerInfoMethod(core, memory, devices)),
      explain_(Method<v1::ExplainRequest, v1::ExplainResponse>("Explain")),
      analyze_(Method<v1::AnalyzeRequest, v1::AnalyzeResponse>("Analyze")),
      apply_rotary_(ApplyRotaryMethod()),
      stream_apply_rotary_(v1::StreamApplyRotaryRequest::descriptor()),
      generate_table_(Method<v1::GenerateTableRequest, v1::GenerateTableResponse>("GenerateTable")),
      stream_table_(TileMethod::Of<v1::StreamTableRequest, v1::StreamTableResponse>("StreamTable")),
      generate_embedding_(Method<v1::GenerateEmbeddingRequest, v1::GenerateEmbeddingResponse>("GenerateEmbedding")),
      generate_bias_(Method<v1::GenerateBiasRequest, v1::GenerateBiasResponse>("GenerateBias")),
      stream_bias_(TileMethod::Of<v1::StreamBiasRequest, v1::StreamBiasResponse>("StreamBias")),
      add_bias_(Method<v1::AddBiasRequest, v1::AddBiasResponse>("AddBias")),
      relative_scores_(Method<v1::RelativeScoresRequest, v1::RelativeScoresResponse>("RelativeScores")),
      relative_values_(Method<v1::RelativeValuesRequest, v1::RelativeValuesResponse>("RelativeValues")),
      diagnose_(Method<v1::DiagnoseRequest, v1::DiagnoseResponse>("Diagnose")),
      diagnose_bias_(Method<v1::DiagnoseBiasRequest, v1::DiagnoseBiasResponse>("DiagnoseBias")) {}

Service::Reactor* Service::GetServerInfo(Context* context, const Bytes* request, Bytes* response) {
  return StartUnaryCall(core_, get_server_info_, context, request, response);
}

Service::Reactor* Service::Explain(Context* context, const Bytes* request, Bytes* response) {
  return StartUnaryCall(core_, explain_, context, request, response);
}

Service::Reactor* Service::Analyze(Context* context, const Bytes* request, Bytes* response) {
  return StartUnaryCall(core_, analyze_, context, request, response);
}

Service::Reactor* Service::ApplyRotary(Context* context, const Bytes* request, Bytes* response) {
  return StartUnaryCall(core_, apply_rotary_, context, request, response);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Service::StreamApplyRotary(Context* context) {
  return StartRotaryStream(core_, stream_apply_rotary_, context);
}

Service::Reactor* Service::GenerateTable(Context* context, const Bytes* request, Bytes* response) {
  return StartUnaryCall(core_, generate_table_, context, request, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* Service::StreamTable(Context* context, const Bytes* request) {
  return StartTileStream(core_, stream_table_, context, request);
}

Service::Reactor* Service::GenerateEmbedding(Context* context, const Bytes* request, Bytes* response) {
  return StartUnaryCall(core_, generate_embedding_, context, request, response);
}

Service::Reactor* Service::GenerateBias(Context* context, const Bytes* request, Bytes* response) {
  return StartUnaryCall(core_, generate_bias_, context, request, response);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* Service::StreamBias(Context* context, const Bytes* request) {
  return StartTileStream(core_, stream_bias_, context, request);
}

Service::Reactor* Service::AddBias(Context* context, const Bytes* request, Bytes* response) {
  return StartUnaryCall(core_, add_bias_, context, request, response);
}

Service::Reactor* Service::RelativeScores(Context* context, const Bytes* request, Bytes* response) {
  return StartUnaryCall(core_, relative_scores_, context, request, response);
}

Service::Reactor* Service::RelativeValues(Context* context, const Bytes* request, Bytes* response) {
  return StartUnaryCall(core_, relative_values_, context, request, response);
}

Service::Reactor* Service::Diagnose(Context* context, const Bytes* request, Bytes* response) {
  return StartUnaryCall(core_, diagnose_, context, request, response);
}

Service::Reactor* Service::DiagnoseBias(Context* context, const Bytes* request, Bytes* response) {
  return StartUnaryCall(core_, diagnose_bias_, context, request, response);
}

}  // namespace posenc::server
