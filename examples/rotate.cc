// Rotates a query by RoPE on a posenc-server. Usage: example-rotate ADDRESS
#include <cstdio>
#include <vector>

#include "posenc/client/client.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  posenc::Client client({.address = argv[1]});  // posenc::InProcess has the same methods without a server

  const std::vector<float> q(3 * 32 * 128, 1.0f);  // three tokens, 32 heads of 128 elements
  posenc::v1::ApplyRotaryRequest request;
  auto& settings = *request.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.set_rotary_dim(128);
  settings.set_input_pairing(posenc::v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_offset(100'000);
  request.set_layout(posenc::v1::LAYOUT_BSHD);
  auto& tensor = *request.mutable_q()->mutable_tensor();
  tensor.set_dtype(posenc::v1::DATA_TYPE_FP32);
  for (const int64_t size : {1, 3, 32, 128}) tensor.add_shape(size);
  tensor.set_data(q.data(), q.size() * sizeof(float));

  const auto answer = client.ApplyRotary(request);
  if (!answer.ok()) {
    std::fprintf(stderr, "%s\n", answer.status().ToString().c_str());
    return 1;
  }
  const auto* rotated = reinterpret_cast<const float*>(answer->q().data().data());
  std::printf("%g %g %g %g\n", rotated[0], rotated[1], rotated[2], rotated[3]);
}
