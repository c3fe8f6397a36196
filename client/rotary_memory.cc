#include "client/rotary_memory.h"

#include <functional>
#include <string>

#include "posenc/status.h"

namespace posenc {
namespace {

bool Overlap(const void* a, int64_t a_bytes, const void* b, int64_t b_bytes) {
  const std::less<> before;
  const auto* a_begin = static_cast<const std::byte*>(a);
  const auto* b_begin = static_cast<const std::byte*>(b);
  return before(a_begin, b_begin + b_bytes) && before(b_begin, a_begin + a_bytes);
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
      const bool input = !in_place && Overlap(written.tensor.output, written.bytes, other.tensor.input, other.bytes);
      const bool output = !itself && Overlap(written.tensor.output, written.bytes, other.tensor.output, other.bytes);
      if (input || output) {
        return InvalidArgument("CONFLICT", std::string("memory.") + written.name + ".output", "",
                               std::string("overlaps ") + other.name + (input ? ".input" : ".output"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace posenc
