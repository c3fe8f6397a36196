// Compares an answer with the expected one.
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

// The first element in which an answer differs; absent if none does. `pieces`: the messages of the answer. `shared`:
// its tensors if they are in shared memory, consecutive, each aligned to 64 bytes.
std::optional<Mismatch> FindMismatch(const Work& work, const google::protobuf::Message& expected,
                                     const std::vector<grpc::ByteBuffer>& pieces,
                                     absl::Span<const std::byte> shared = {});

}  // namespace posenc::load
