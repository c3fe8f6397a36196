// One line of the result table: a figure of posenc beside a reference's, and the goal of their ratio.
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

// Prints the row as a JSON object on one line.
void Print(const Row& row);

}  // namespace posenc::bench
