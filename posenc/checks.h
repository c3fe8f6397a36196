// Checks of numbers that many settings share. `name` is the field's.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "posenc/dtype.h"

namespace posenc {

absl::Status CheckFinite(std::string_view name, double value);
absl::Status CheckFinite(std::string_view name, const std::vector<float>& values);
absl::Status CheckPositive(std::string_view name, double value);

// FP32, FP16 or BF16: what tensors of attention are.
absl::Status CheckDataType(std::string_view name, DType dtype);

}  // namespace posenc
