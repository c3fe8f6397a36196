// Command lines, as the programs give them to CLI11.
#pragma once

#include <string>
#include <vector>

namespace posenc {

// Returns argv[1 .. argc) in reverse, the order of CLI::App::parse(std::vector<std::string>). "--flag=" becomes
// "--flag" and "": CLI11 would take the next argument, which may be a flag, for its value.
std::vector<std::string> ReversedArguments(int argc, const char* const* argv);

}  // namespace posenc
