// The parser of every JSON text that somebody else wrote: config.json, policies, headers of tensor files, mixes,
// reports.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/status.h"

namespace posenc {

// Parses a text into `tree`, which must be null. The time is linear in the text's size; it has interruption points.
// INVALID_ARGUMENT names the place, by a path that begins with `root`, by line and column, of the first error: a text
// that is no JSON in UTF-8, a key given twice, a number above the range of float64, more than 64 levels of nesting. The
// functions that copy, compare, print and free a tree are recursive. On an error the tree has what was read before.
absl::Status ParseJson(std::string_view text, std::string_view root, nlohmann::json* tree);

}  // namespace posenc
