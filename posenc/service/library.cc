#include "posenc/base/version.h"
#include "posenc/kernels/target.h"
#include "posenc/methods/rope/methods.h"
#include "posenc/service/operations.h"

namespace posenc::wire {

void DescribeLibrary(const Limits& limits, v1::GetServerInfoResponse* response) {
  response->set_version(kVersion);
  response->set_build(kBuild);
  response->set_numerics_version(kNumericsVersion);
  response->set_config_rules(kConfigRules);
  response->set_cpu_target(CpuTarget());
  for (const std::string& target : SupportedCpuTargets()) response->add_cpu_targets(target);
  for (const MethodFamily& family : MethodFamilies()) {
    v1::MethodFamily* message = response->add_methods();
    message->set_family(std::string(family.family));
    for (std::string_view method : family.methods) message->add_methods(std::string(method));
  }
  v1::ServerLimits* message = response->mutable_limits();
  message->set_max_request_bytes(limits.max_request_bytes);
  message->set_max_output_bytes(limits.max_output_bytes);
  message->set_max_tensor_rank(limits.max_tensor_rank);
  message->set_max_rotary_dim(limits.max_rotary_dim);
  message->set_max_heads(limits.max_heads);
  message->set_max_config_json_bytes(limits.max_config_json_bytes);
  message->set_max_sequences(limits.max_sequences);
  message->set_max_plan_values(limits.max_plan_values);
  message->set_max_bias_values(limits.max_bias_values);
}

}  // namespace posenc::wire
