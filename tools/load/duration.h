// Parsers for durations such as "5ms", "1.5s", "2m", "100us", and for shares.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"

namespace posenc::load {

// Returns seconds, above 0 and finite; a number without a unit is seconds. Errors are INVALID_ARGUMENT with the field.
absl::StatusOr<double> ParseSeconds(std::string_view field, std::string_view text);

// Returns a share, 0 .. 1, from "1%" or from a plain number, which is the share itself.
absl::StatusOr<double> ParseShare(std::string_view field, std::string_view text);

}  // namespace posenc::load
