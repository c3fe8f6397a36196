// Converts results to JSON and back. docs/load-report.md describes each field.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tools/load/results.h"

namespace posenc::load {

// JSON that ends with a newline. Numbers must be finite. Invalid UTF-8 in a text becomes U+FFFD.
std::string ToJson(const Results& results);

// Returns INVALID_ARGUMENT naming the field that is missing or wrong. Unknown fields are ignored.
absl::StatusOr<Results> FromJson(std::string_view text);

}  // namespace posenc::load
