#include "posenc/base/arguments.h"

#include <utility>

namespace posenc {

std::vector<std::string> ReversedArguments(int argc, const char* const* argv) {
  std::vector<std::string> arguments;
  for (int n = argc - 1; n > 0; --n) {
    std::string argument = argv[n];
    if (argument.starts_with("--") && argument.find('=') == argument.size() - 1) {
      arguments.emplace_back();
      argument.pop_back();
    }
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

}  // namespace posenc
