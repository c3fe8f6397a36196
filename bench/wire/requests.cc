#include "bench/wire/requests.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <utility>

namespace posenc::bench {
namespace {

constexpr int64_t kHeadDim = 128, kHeads = 32, kKeyHeads = 8;

void Shape(int64_t batch, int64_t tokens, int64_t heads, v1::Tensor* tensor) {
  tensor->set_dtype(v1::DATA_TYPE_BF16);
  for (const int64_t size : {batch, tokens, heads, kHeadDim}) tensor->add_shape(size);
}

void FillTensor(v1::Tensor* tensor) {
  size_t bytes = 2;
  for (const int64_t size : tensor->shape()) bytes *= size;
  tensor->mutable_data()->resize(bytes);
  Fill(tensor->mutable_data()->data(), bytes);
}

// Returns the request settings of one model, the same for all its layers.
v1::ApplyRotaryRequest Rotation(double rope_theta) {
  v1::ApplyRotaryRequest request;
  v1::RotarySettings& settings = *request.mutable_rotary()->mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.mutable_rope_parameters()->set_rope_theta(rope_theta);
  settings.set_rotary_dim(kHeadDim);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  request.mutable_positions()->set_offset(4096);
  request.set_layout(v1::LAYOUT_BSHD);
  return request;
}

}  // namespace

v1::ApplyRotaryRequest RotationWithoutData(size_t bytes) {
  v1::ApplyRotaryRequest request = Rotation(5e5);
  Shape(1, static_cast<int64_t>(bytes) / (kHeads * kHeadDim * 2), kHeads, request.mutable_q()->mutable_tensor());
  return request;
}

grpc::ByteBuffer RotationOfSize(size_t bytes) {
  v1::ApplyRotaryRequest request = RotationWithoutData(bytes);
  FillTensor(request.mutable_q()->mutable_tensor());
  return Serialize(request);
}

inference::ModelInferRequest InferenceWithoutData(size_t bytes) {
  const v1::ApplyRotaryRequest rotation = RotationWithoutData(bytes);
  inference::ModelInferRequest request;
  request.set_model_name("posenc.rotary");
  auto& parameters = *request.mutable_parameters();
  std::string settings;
  (void)google::protobuf::util::MessageToJsonString(rotation.rotary().settings(), &settings);
  parameters["settings"].set_string_param(settings);
  parameters["layout"].set_string_param("BSHD");
  parameters["offset"].set_int64_param(rotation.positions().offset());
  auto& input = *request.add_inputs();
  input.set_name("q");
  input.set_datatype("BF16");
  *input.mutable_shape() = rotation.q().tensor().shape();
  return request;
}

grpc::ByteBuffer InferenceOfSize(size_t bytes) {
  inference::ModelInferRequest request = InferenceWithoutData(bytes);
  std::string& data = *request.add_raw_input_contents();
  data.resize(bytes);
  Fill(data.data(), bytes);
  return Serialize(request);
}

grpc::ByteBuffer DecodeStep(double rope_theta, int64_t layers) {
  v1::ApplyRotaryRequest request = Rotation(rope_theta);
  for (auto [operand, heads] : {std::pair(request.mutable_q(), kHeads), {request.mutable_k(), kKeyHeads}}) {
    Shape(layers, 1, heads, operand->mutable_tensor());
    FillTensor(operand->mutable_tensor());
  }
  return Serialize(request);
}

size_t DecodeStepBytes() { return (kHeads + kKeyHeads) * kHeadDim * 2; }

grpc::ByteBuffer Serialize(const google::protobuf::Message& request) {
  const grpc::Slice slice(request.SerializeAsString());
  return {&slice, 1};
}

void Fill(char* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(i % 2 == 0 ? i * 37 : 0x3e + i % 4 / 2);
}

std::string SizeName(size_t bytes) {
  return bytes < kMiB ? fmt::format("{} KiB", bytes / kKiB) : fmt::format("{} MiB", bytes / kMiB);
}

}  // namespace posenc::bench
