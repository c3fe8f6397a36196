// Spans of time as people write them: "5ms", "1.5s", "2m", "100us".
#pragma once

#include <string_view>

#include "absl/status/statusor.h"

namespace posenc::load {

// In seconds, above 0 and finite; a number alone is seconds. INVALID_ARGUMENT names the field.
absl::StatusOr<double> ParseSeconds(std::string_view field, std::string_view text);

// A share, 0 .. 1: "1%", or a number alone, which is the share itself.
absl::StatusOr<double> ParseShare(std::string_view field, std::string_view text);

}  // namespace posenc::load
