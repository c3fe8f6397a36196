// Help for a terminal of 80 columns, in which CLI11's long lines would be broken within words.
#pragma once

#include <string>
#include <string_view>

namespace posenc {

// Returns CLI11's help with lines of at most 80 columns, broken between words. The rest of a flag's description goes
// below its beginning. A word that is longer than a line stays whole.
std::string WrapHelp(std::string_view help);

}  // namespace posenc
