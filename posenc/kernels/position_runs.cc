#include "posenc/kernels/position_runs.h"

#include <algorithm>
#include <cmath>

namespace posenc {

PositionRun FirstRun(const double* positions, size_t count) {
  if (count < kShortestRun) return {count, false};
  count = std::min(count, kLongestRun);
  const double first = positions[0], step = positions[1] - first;
  size_t rows = 1;  // row 1 is tested too: the step may have been rounded
  while (rows < count && positions[rows] == first + static_cast<double>(rows) * step) ++rows;
  if (rows < kShortestRun) return {rows, false};
  // If first and step are multiples of this quantum, all positions and half steps fit into a double.
  int exponent;
  std::frexp(std::max(std::abs(first), std::abs(positions[rows - 1])), &exponent);
  const double quantum = std::ldexp(1, exponent - 50);
  return {rows, std::fmod(first, quantum) == 0 && std::fmod(step, quantum) == 0};
}

}  // namespace posenc
