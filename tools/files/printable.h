// Text of files and servers for a terminal, which could take control characters for commands.
#pragma once

#include <string>
#include <string_view>

namespace posenc {

// Replaces control characters, including C1, by '?', except for those in `kept`.
std::string Printable(std::string_view text, std::string_view kept = "");

}  // namespace posenc
