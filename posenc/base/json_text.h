// The parser of every JSON text that somebody else wrote: config.json, policies, headers of tensor files, mixes,
// reports.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace posenc {

// Parses a text into `tree`, which must be null. The time is linear in the text's size; it has interruption points.
// INVALID_ARGUMENT names the place, by a path that begins with `root`, by line and column, of the first error: a text
// that is no JSON in UTF-8, a key given twice, a number above the range of float64, more than 64 levels of nesting. The
// functions that copy, compare, print and free a tree are recursive. On an error the tree has what was read before.
absl::Status ParseJson(std::string_view text, std::string_view root, nlohmann::json* tree);

// Arrays of numbers, which would take many times their text as a tree.
struct NumberArrays {
  // Arrays with this key are left out, whatever their depth. They may have numbers, true, false, and arrays of these.
  std::string_view key;
  size_t max_values = 0;                     // that the tree may have
  std::vector<std::string_view> texts = {};  // of the arrays
};

// Leaves out arrays: the tree has a binary value instead, whose subtype is the index of the array's text.
absl::Status ParseJson(std::string_view text, std::string_view root, NumberArrays* arrays, nlohmann::json* tree);

}  // namespace posenc
