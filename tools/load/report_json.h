// Results as JSON and back: docs/load-report.md says what each field is.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tools/load/results.h"

namespace posenc::load {

// Ends with a newline. Numbers must be finite. What is not UTF-8 in a text becomes U+FFFD.
std::string ToJson(const Results& results);

// INVALID_ARGUMENT says which field is missing or wrong. Fields that are not known are left out.
absl::StatusOr<Results> FromJson(std::string_view text);

}  // namespace posenc::load
