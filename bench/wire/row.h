// One line of the table: a figure of posenc's beside another's, and what their ratio should be.
#pragma once

#include <string>

namespace posenc::bench {

struct Row {
  std::string name, against;
  double subject, other;
  const char* unit;
  double ratio, goal;
  bool at_least;
};

// As a JSON object on a line of its own.
void Print(const Row& row);

}  // namespace posenc::bench
