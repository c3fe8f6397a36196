// Element types, with the names of the Open Inference Protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace posenc {

enum class DType : uint8_t { kFP32, kFP16, kBF16, kFP64, kINT32, kINT64, kBOOL };

constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFP64:
    case DType::kINT64: return 8;
    case DType::kFP32:
    case DType::kINT32: return 4;
    case DType::kFP16:
    case DType::kBF16: return 2;
    case DType::kBOOL: return 1;
  }
  __builtin_unreachable();
}

constexpr std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kFP32: return "FP32";
    case DType::kFP16: return "FP16";
    case DType::kBF16: return "BF16";
    case DType::kFP64: return "FP64";
    case DType::kINT32: return "INT32";
    case DType::kINT64: return "INT64";
    case DType::kBOOL: return "BOOL";
  }
  __builtin_unreachable();
}

}  // namespace posenc
