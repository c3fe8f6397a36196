// Man pages, made from the same descriptions as the help.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"

namespace posenc {

struct ManPage {
  const CLI::App* app = nullptr;
  std::string name, words;  // "posenc-plot-decay", "posenc plot decay"
  int section = 1;
  std::vector<std::string> groups;                            // of flags, in order
  std::vector<std::pair<std::string, std::string>> commands;  // names and descriptions
};

// Returns the page in the language of man, roff. Its examples are the app's footer.
std::string Roff(const ManPage& page);

}  // namespace posenc
