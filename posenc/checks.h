// Checks of numbers that many settings share. `name` is the field's.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace posenc {

absl::Status CheckFinite(std::string_view name, double value);
absl::Status CheckPositive(std::string_view name, double value);

}  // namespace posenc
