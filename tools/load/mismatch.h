// An answer beside the one that is expected.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include "absl/types/span.h"
#include "tools/load/results.h"
#include "tools/load/work.h"

namespace posenc::load {

// The first element in which an answer differs; absent: none. `pieces` are the messages of the answer, `shared` its
// tensors where it lies in shared memory, one after the other at multiples of 64 bytes.
std::optional<Mismatch> FindMismatch(const Work& work, const google::protobuf::Message& expected,
                                     const std::vector<grpc::ByteBuffer>& pieces,
                                     absl::Span<const std::byte> shared = {});

}  // namespace posenc::load
