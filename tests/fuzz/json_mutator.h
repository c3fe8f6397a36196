// Changes JSON texts by their values, so that most stay JSON.
#pragma once

#include <string>
#include <string_view>

#include "tests/fuzz/random.h"

namespace posenc::fuzz {

// Returns the text with one change: a value is replaced, added, removed or copied to another name. A text that is not
// an object or an array is changed by its bytes.
std::string ChangeJson(std::string_view text, Random& random);

// Returns `text` with a random member of an object in `from`.
std::string CrossJson(std::string_view text, std::string_view from, Random& random);

}  // namespace posenc::fuzz
