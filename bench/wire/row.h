// One line of the result table: a figure of posenc beside a reference's, and the goal of their ratio.
#pragma once

#include <optional>
#include <string>

#include "bench/measure.h"

namespace posenc::bench {

struct Row {
  std::string name, against;
  double subject, other;
  const char* unit;
  double ratio, goal;
  bool at_least;
  // Confidence interval of the ratio. If given, all of it must meet the goal.
  std::optional<Interval> interval = std::nullopt;
};

// Prints the row as a JSON object on one line.
void Print(const Row& row);

}  // namespace posenc::bench
