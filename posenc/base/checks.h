// Range checks shared by many settings. `name` is the field's name; failures return INVALID_ARGUMENT naming it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "posenc/base/dtype.h"

namespace posenc {

absl::Status CheckFinite(std::string_view name, double value);
absl::Status CheckFinite(std::string_view name, const std::vector<float>& values);
absl::Status CheckFinite(std::string_view name, const std::vector<double>& values);
absl::Status CheckPositive(std::string_view name, double value);

// Positions of larger magnitude are not exact in float64 and are refused.
inline constexpr double kLargestPosition = 9007199254740992.0;  // 2^53
absl::Status CheckPosition(std::string_view name, double position);

// Checks boundaries of packed sequences (cu_seqlens): they start with 0, do not decrease, and end with `tokens`.
absl::Status CheckSequenceBounds(std::string_view name, const std::vector<int64_t>& bounds, int64_t tokens);

// Maximum axes of a token's position; models have at most four.
inline constexpr int64_t kMaxAxes = 64;

// Accepts FP32, FP16 and BF16, the element types of attention tensors.
absl::Status CheckDataType(std::string_view name, DType dtype);

}  // namespace posenc
