#include "posenc/client/rotary_memory.h"

#include <string>

#include "posenc/base/status.h"
#include "posenc/client/tensor_memory.h"

namespace posenc {
namespace {

absl::Span<const std::byte> Bytes(const void* data, int64_t size) {
  return {static_cast<const std::byte*>(data), static_cast<size_t>(size)};
}

}  // namespace

absl::Status CheckMemory(int64_t q_bytes, int64_t k_bytes, const RotaryMemory& memory) {
  struct Named {
    const char* name;
    const TensorMemory& tensor;
    int64_t bytes;
  };
  const Named operands[] = {{"q", memory.q, q_bytes}, {"k", memory.k, k_bytes}};
  for (const Named& written : operands) {
    if (written.bytes == 0) continue;
    if (written.tensor.input == nullptr || written.tensor.output == nullptr) {
      return InvalidArgument("MISSING", std::string("memory.") + written.name, "", "input and output are required");
    }
    for (const Named& other : operands) {
      if (other.bytes == 0) continue;
      const bool itself = &other == &written;
      const bool in_place = itself && written.tensor.input == written.tensor.output;
      const auto to = Bytes(written.tensor.output, written.bytes);
      const bool input = !in_place && Overlap(to, Bytes(other.tensor.input, other.bytes));
      const bool output = !itself && Overlap(to, Bytes(other.tensor.output, other.bytes));
      if (input || output) {
        return InvalidArgument("CONFLICT", std::string("memory.") + written.name + ".output", "",
                               std::string("overlaps ") + other.name + (input ? ".input" : ".output"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace posenc
