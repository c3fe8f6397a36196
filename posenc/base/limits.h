// Limits of one request. The server sets them from flags; in process the defaults apply.
#pragma once

#include <cstdint>

namespace posenc {

struct Limits {
  int64_t max_request_bytes = int64_t{256} << 20;
  int64_t max_output_bytes = int64_t{256} << 20;  // tensor bytes of one answer
  int32_t max_tensor_rank = 8;
  // Each dimension of a tensor, and each count of tokens, positions or rows.
  int64_t max_dimension = (int64_t{1} << 31) - 1;
  int64_t max_rotary_dim = 65536;
  int64_t max_heads = 65536;
  int64_t max_config_json_bytes = int64_t{1} << 20;
  int64_t max_sequences = 65536;               // per request, in cu_seqlens or with own frequencies
  int64_t max_plan_values = int64_t{1} << 16;  // frequencies per request, over all its sequence lengths
  int64_t max_bias_values = int64_t{1} << 22;  // per request's bias: at least heads times distances
};

}  // namespace posenc
