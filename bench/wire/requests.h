// Requests of the timed calls: rotations of BF16, half-split, head_dim 128.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "grpcpp/support/byte_buffer.h"
#include "inference/service.pb.h"
#include "posenc/v1/service.pb.h"

namespace posenc::bench {

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;

// Returns a request for q alone, 32 heads and `bytes` bytes, whose data are not set yet.
v1::ApplyRotaryRequest RotationWithoutData(size_t bytes);
// Returns RotationWithoutData(bytes) with data, serialized.
grpc::ByteBuffer RotationOfSize(size_t bytes);
// Returns the same rotation as a request of the Open Inference Protocol, without data.
inference::ModelInferRequest InferenceWithoutData(size_t bytes);
// Returns InferenceWithoutData(bytes) with data, serialized.
grpc::ByteBuffer InferenceOfSize(size_t bytes);
// Returns the rotation of one token in each of `layers` layers, q of 32 heads and k of 8, serialized. The layers are
// the batch. A different rope_theta needs a new plan.
grpc::ByteBuffer DecodeStep(double rope_theta = 5e5, int64_t layers = 1);
// Bytes of q and k of one layer.
size_t DecodeStepBytes();

grpc::ByteBuffer Serialize(const google::protobuf::Message& request);
// Fills `data` with finite numbers.
void Fill(char* data, size_t bytes);

// Returns "64 KiB", "1 MiB".
std::string SizeName(size_t bytes);

}  // namespace posenc::bench
