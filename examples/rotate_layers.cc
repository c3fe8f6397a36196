// Rotates the queries and keys of all layers of a decode step in one call. Usage: example-rotate-layers ADDRESS
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <vector>

#include "posenc/client/client.h"

namespace {

constexpr int64_t kLayers = 64, kSequences = 3, kQueryHeads = 32, kKeyHeads = 8, kHeadDim = 128;

// Describes a tensor [layers, sequences, heads, head_dim] whose elements lie in `values`.
posenc::wire::TensorView Describe(const std::vector<float>& values, int64_t heads, posenc::v1::Tensor* tensor) {
  tensor->set_dtype(posenc::v1::DATA_TYPE_FP32);
  for (const int64_t size : {kLayers, kSequences, heads, kHeadDim}) tensor->add_shape(size);
  return {tensor,
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float))};
}

absl::Span<std::byte> Writable(std::vector<float>* values) {
  return absl::MakeSpan(reinterpret_cast<std::byte*>(values->data()), values->size() * sizeof(float));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  posenc::Client client({.address = argv[1]});

  std::vector<float> q(kLayers * kSequences * kQueryHeads * kHeadDim, 1.0f);
  std::vector<float> k(kLayers * kSequences * kKeyHeads * kHeadDim, 1.0f);
  const std::vector<int64_t> positions = {17, 400, 100'000};  // of each sequence's new token

  posenc::v1::ApplyRotaryRequest request;
  auto& settings = *request.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.set_rotary_dim(kHeadDim);
  settings.set_input_pairing(posenc::v1::PAIRING_HALF_SPLIT);
  // The layers are the batch B, the sequences the tokens S. So positions [S] hold for every layer.
  request.set_layout(posenc::v1::LAYOUT_BSHD);
  auto& ids = *request.mutable_positions()->mutable_ids();
  ids.set_dtype(posenc::v1::DATA_TYPE_INT64);
  ids.add_shape(kSequences);
  ids.set_data(positions.data(), positions.size() * sizeof(int64_t));

  posenc::CallOptions options;  // q and k stay where they are, and are overwritten
  options.inputs = {Describe(q, kQueryHeads, request.mutable_q()->mutable_tensor()),
                    Describe(k, kKeyHeads, request.mutable_k()->mutable_tensor())};
  options.outputs = {Writable(&q), Writable(&k)};
  const auto answer = client.ApplyRotary(request, options);
  if (!answer.ok()) {
    std::fprintf(stderr, "%s\n", answer.status().ToString().c_str());
    return 1;
  }
  const float* last = q.data() + ((kLayers - 1) * kSequences + 2) * kQueryHeads * kHeadDim;  // layer 63, sequence 2
  std::printf("%g %g %g %g\n", last[0], last[1], last[2], last[3]);
}
