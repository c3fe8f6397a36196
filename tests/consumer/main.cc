// Rotates the pair (1, 0) by one radian in process, and calls a server that does not exist.
#include <cstdio>
#include <cstring>

#include "posenc/client/client.h"
#include "posenc/in_process/in_process.h"

int main() {
  posenc::v1::ApplyRotaryRequest request;
  auto& settings = *request.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.set_rotary_dim(2);
  settings.set_input_pairing(posenc::v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_offset(1);
  request.set_layout(posenc::v1::LAYOUT_BSHD);
  auto& tensor = *request.mutable_q()->mutable_tensor();
  tensor.set_dtype(posenc::v1::DATA_TYPE_FP32);
  for (const int size : {1, 1, 1, 2}) tensor.add_shape(size);
  const float pair[] = {1, 0};
  tensor.set_data(pair, sizeof(pair));

  const auto answer = posenc::InProcess().ApplyRotary(request);
  if (!answer.ok()) {
    std::fprintf(stderr, "%s\n", answer.status().ToString().c_str());
    return 1;
  }
  const float rotated[] = {0x1.14a280p-1f, 0x1.aed548p-1f};  // cos 1 and sin 1
  if (answer->q().data().size() != sizeof(rotated) ||
      std::memcmp(answer->q().data().data(), rotated, sizeof(rotated)) != 0) {
    std::fprintf(stderr, "not cos 1 and sin 1\n");
    return 1;
  }

  posenc::Client nobody({.address = "unix:nobody-listens-here"});
  const auto health = nobody.CheckHealth();
  if (health.status().code() != absl::StatusCode::kUnavailable) {
    std::fprintf(stderr, "expected UNAVAILABLE: %s\n", health.status().ToString().c_str());
    return 1;
  }
  std::puts("rotated");
}
