// Examples of each command, for its help and its man page. A test runs them.
#pragma once

#include <string>

namespace posenc::command {

// Returns the examples of a command such as "posenc plot decay", or "" if it has none of its own.
std::string ExamplesOf(const std::string& command);

}  // namespace posenc::command
