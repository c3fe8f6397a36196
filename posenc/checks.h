// Checks of numbers that many settings share. `name` is the field's.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace posenc {

absl::Status CheckFinite(std::string_view name, double value);
absl::Status CheckFinite(std::string_view name, const std::vector<float>& values);
absl::Status CheckPositive(std::string_view name, double value);

}  // namespace posenc
