#include "bench/case.h"

#include <fmt/format.h>

namespace posenc::bench {

std::string ShortName(DType dtype) {
  switch (dtype) {
    case DType::kFP32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kFP16: return "f16";
    default: return std::string(posenc::Name(dtype));
  }
}

std::string Case::Name(size_t on_threads) const {
  std::string name = fmt::format("{} {} {}", work, dtype, pairing);
  if (head_dim > 0) name += fmt::format(" D={}", head_dim);
  name += bytes >= 1 << 20 ? fmt::format(" {}MiB", bytes >> 20) : fmt::format(" {}KiB", bytes >> 10);
  if (!variant.empty()) name += " " + variant;
  return name + fmt::format(" {}t", on_threads);
}

}  // namespace posenc::bench
