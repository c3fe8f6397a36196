#include "server/oip/metadata.h"

#include "server/oip/datatypes.h"

namespace posenc::server {
namespace {

constexpr char kPlatform[] = "posenc";

void Set(uint64_t count, uint64_t ns, inference::StatisticDuration* duration) {
  duration->set_count(count);
  duration->set_ns(ns);
}

}  // namespace

void DescribeModel(const Model& model, inference::ModelMetadataResponse* response) {
  response->set_name(model.name);
  response->add_versions(Models::kVersion);
  response->set_platform(kPlatform);
  const auto describe = [](const auto& field, const std::string& datatype, auto* tensor) {
    tensor->set_name(field.name);
    tensor->set_datatype(datatype);
    tensor->mutable_shape()->Assign(field.shape.begin(), field.shape.end());
  };
  for (const InputField& field : model.encoding->inputs) {
    describe(field, field.datatypes.front(), response->add_inputs());
  }
  for (const OutputField& field : model.encoding->outputs) describe(field, field.datatype, response->add_outputs());
}

void DescribeModel(const Model& model, inference::ModelConfig* config) {
  config->set_name(model.name);
  config->set_platform(kPlatform);
  config->set_backend(kPlatform);
  for (const InputField& field : model.encoding->inputs) {
    auto& input = *config->add_input();
    input.set_name(field.name);
    input.set_data_type(ConfigTypeOf(field.datatypes.front()));
    input.mutable_dims()->Assign(field.shape.begin(), field.shape.end());
    input.set_optional(field.optional);
  }
  for (const OutputField& field : model.encoding->outputs) {
    auto& output = *config->add_output();
    output.set_name(field.name);
    output.set_data_type(ConfigTypeOf(field.datatype));
    output.mutable_dims()->Assign(field.shape.begin(), field.shape.end());
  }
}

void DescribeModel(const Model& model, inference::ModelStatistics* statistics) {
  const ModelCounters& counters = *model.counters;
  const uint64_t count = counters.succeeded;
  statistics->set_name(model.name);
  statistics->set_version(Models::kVersion);
  statistics->set_last_inference(counters.last_ms);
  statistics->set_inference_count(count);
  statistics->set_execution_count(count);
  auto& stats = *statistics->mutable_inference_stats();
  Set(count, counters.queued_ns + counters.computed_ns, stats.mutable_success());
  Set(counters.failed, counters.failed_ns, stats.mutable_fail());
  Set(count, counters.queued_ns, stats.mutable_queue());
  // Inputs are read and outputs written while they are computed.
  Set(count, 0, stats.mutable_compute_input());
  Set(count, counters.computed_ns, stats.mutable_compute_infer());
  Set(count, 0, stats.mutable_compute_output());
}

void DescribeModel(const Model& model, inference::RepositoryIndexResponse::ModelIndex* index) {
  index->set_name(model.name);
  index->set_version(Models::kVersion);
  index->set_state(model.ready() ? "READY" : "UNAVAILABLE");
  index->set_reason(model.reason);
}

}  // namespace posenc::server
