// One line of the result table: a figure of posenc beside a reference's, and the goal of their ratio.
#pragma once

#include <string>
#include <vector>

namespace posenc::bench {

struct Row {
  std::string name, against;
  double subject, other;
  const char* unit;
  std::vector<double> ratios;  // of each round; bench/judge.py judges them
  double goal;                 // of their median; 0: none
  bool at_least;
};

// Prints the row as a JSON object on one line.
void Print(const Row& row);

}  // namespace posenc::bench
