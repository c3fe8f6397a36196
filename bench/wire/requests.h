// The calls that are timed: rotations of BF16, half-split, heads of 128.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "grpcpp/support/byte_buffer.h"
#include "posenc/v1/service.pb.h"

namespace posenc::bench {

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;

// q alone, of 32 heads and so many bytes, which it does not have yet.
v1::ApplyRotaryRequest RotationWithoutData(size_t bytes);
// The same with data, as a message.
grpc::ByteBuffer RotationOfSize(size_t bytes);
// One token's, q of 32 heads and k of 8. Another base is another plan.
grpc::ByteBuffer DecodeStep(double rope_theta = 5e5);

grpc::ByteBuffer Serialize(const v1::ApplyRotaryRequest& request);
// Finite numbers.
void Fill(char* data, size_t bytes);

// "64 KiB", "1 MiB".
std::string SizeName(size_t bytes);

}  // namespace posenc::bench
