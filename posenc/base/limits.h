// What one request may ask for. The server's flags set them; in process they keep their defaults.
#pragma once

#include <cstdint>

namespace posenc {

class Devices;  // posenc/service/devices.h

struct Limits {
  int64_t max_request_bytes = int64_t{256} << 20;
  int64_t max_output_bytes = int64_t{256} << 20;  // tensor bytes of one answer
  int32_t max_tensor_rank = 8;
  int64_t max_rotary_dim = 65536;
  int64_t max_heads = 65536;
  int64_t max_config_json_bytes = int64_t{1} << 20;
  int64_t max_sequences = 65536;               // of one request, where they are counted one by one
  int64_t max_plan_values = int64_t{1} << 16;  // frequencies of one request, over all its sequence lengths
  int64_t max_bias_values = int64_t{1} << 22;  // of one request's bias: heads times distances, at the least
  bool plans_at_hand = false;                  // nothing that may take long is computed: NotAtHand() instead
  const Devices* devices = nullptr;            // beside the CPU; null: there are none
};

}  // namespace posenc
