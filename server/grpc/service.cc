#include "server/grpc/service.h"

#include <chrono>
#include <memory>

#include "posenc/service/operations.h"
#include "posenc/v1/service.pb.h"
#include "server/calls/calls.h"
#include "server/core/log.h"

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

void Describe(const Config& config, const Listener::Counters& connections, v1::GetServerInfoResponse* response) {
  response->mutable_limits()->set_max_connections(config.max_connections);
  response->mutable_limits()->set_max_connections_per_peer(config.max_connections_per_peer);
  response->mutable_counters()->set_open_connections(connections.open);
  response->mutable_counters()->set_refused_connections(connections.refused);
}

void Describe(const CertificateStore& certificates, v1::TlsCertificate* message) {
  const CertificateStore::Counters counters = certificates.counters();
  message->set_not_after_seconds(std::chrono::system_clock::to_time_t(certificates.current()->not_after));
  message->set_reloads(counters.reloads);
  message->set_failed_reloads(counters.failed_reloads);
}

void Describe(const AccessControl& access, v1::ServerCounters* message) {
  const AccessControl::Counters counters = access.counters();
  message->set_policy_reloads(counters.reloads);
  message->set_policy_failed_reloads(counters.failed_reloads);
}

wire::UnaryOperation GetServerInfoOperation(const wire::UnaryOperation& row, const Core* core,
                                            const ServerParts& parts) {
  return wire::UnaryOperation::Of<v1::GetServerInfoRequest, v1::GetServerInfoResponse>(
      [core, parts](const v1::GetServerInfoRequest&, const wire::Payloads&, const Limits&,
                    v1::GetServerInfoResponse* response) -> absl::StatusOr<wire::Job> {
        DescribeServer(*core, parts, response);
        return wire::Job();
      },
      row.scheduling);
}

// The right that a caller needs under a policy.
Right RightFor(wire::Purpose purpose) {
  switch (purpose) {
    case wire::Purpose::kCompute: return Right::kCompute;
    case wire::Purpose::kDiagnose: return Right::kDiagnose;
    case wire::Purpose::kInfo: return Right::kInfo;
  }
  __builtin_unreachable();
}

}  // namespace

void DescribeServer(const Core& core, const ServerParts& parts, v1::GetServerInfoResponse* response) {
  if (parts.memory != nullptr) Describe(core.config, *parts.memory, response);
  if (parts.certificates != nullptr) Describe(*parts.certificates, response->mutable_tls_certificate());
  if (parts.access != nullptr) Describe(*parts.access, response->mutable_counters());
  Describe(core.config, parts.listener->counters(), response);
  wire::DescribeLibrary(core.config.limits, response);
  v1::Device* device = response->add_devices();
  device->set_name("cpu");
  device->set_threads(static_cast<int32_t>(core.pool.threads()));
  parts.devices->Describe(response);
  response->mutable_limits()->set_max_in_flight_bytes(core.config.max_in_flight_bytes);
  response->mutable_limits()->set_max_in_flight_requests(core.config.max_in_flight_requests);
  response->mutable_limits()->set_max_call_cost(core.config.max_call_cost);
  const Admission::Counters counters = core.admission->counters();
  response->mutable_counters()->set_requests_started(counters.started);
  response->mutable_counters()->set_requests_failed(counters.failed);
  response->mutable_counters()->set_requests_refused(counters.refused);
  response->mutable_counters()->set_in_flight_requests(counters.in_flight_requests);
  response->mutable_counters()->set_in_flight_bytes(counters.in_flight_bytes);
  response->mutable_counters()->set_log_lines_lost(LogLinesLost());
  response->mutable_counters()->set_stuck_threads(static_cast<int64_t>(core.CountStuckThreads()));
  Describe(PlanCache().counters(), response->mutable_counters()->mutable_plan_cache());
  Describe(TableCache().counters(), response->mutable_counters()->mutable_table_cache());
  const BufferPool::Counters answers = core.buffer_pool->counters();
  v1::PoolCounters& pool = *response->mutable_counters()->mutable_answer_pool();
  pool.set_reused(answers.reused);
  pool.set_allocated(answers.allocated);
  pool.set_bytes(answers.bytes);
}

void AddServiceTo(Methods* methods, Core* core, const ServerParts& parts, const wire::Operations& operations) {
  for (const wire::UnaryOperation& row : operations.unary) {
    auto operation = std::make_shared<const wire::UnaryOperation>(
        row.prepare != nullptr ? row : GetServerInfoOperation(row, core, parts));
    (*methods)[row.rpc.path].right = RightFor(row.purpose);
    (*methods)[row.rpc.path].admits = row.scheduling != wire::Scheduling::kImmediate;
    (*methods)[row.rpc.path].make = [core, operation](Rpc* rpc, grpc::ByteBuffer* request) {
      return MakeUnaryCall(core, *operation, rpc, request);
    };
  }
  for (const wire::TileOperation& operation : operations.tiles) {
    (*methods)[operation.rpc.path].right = Right::kStream;
    (*methods)[operation.rpc.path].make = [core, &operation](Rpc* rpc, grpc::ByteBuffer* request) {
      return MakeTileStream(core, operation, rpc, request);
    };
  }
  Method& stream = (*methods)[wire::RpcOf(*v1::StreamApplyRotaryRequest::descriptor()).path];
  stream.right = Right::kStream;
  stream.reads_first = false;
  stream.make = [core](Rpc* rpc, grpc::ByteBuffer*) { return MakeRotaryStream(core, rpc); };
}

}  // namespace posenc::server
