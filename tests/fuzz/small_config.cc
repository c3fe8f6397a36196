#include "tests/fuzz/served_call.h"

namespace posenc::server {

Config SmallConfig() {
  Config config;
  config.threads = 1;
  config.limits.max_request_bytes = 64 << 10;
  config.limits.max_output_bytes = 64 << 10;
  config.limits.max_rotary_dim = 1024;
  config.limits.max_heads = 256;
  config.limits.max_sequences = 64;
  config.limits.max_plan_values = 1024;
  config.limits.max_bias_values = 1 << 13;
  config.max_call_cost = 2000;
  config.max_in_flight_bytes = 16 << 20;
  config.answer_pool_bytes = 1 << 20;
  config.plan_cache_bytes = config.table_cache_bytes = 1 << 20;
  return config;
}

}  // namespace posenc::server
