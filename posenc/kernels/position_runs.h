// Detection of runs of equally spaced positions.
#pragma once

#include <cstddef>

namespace posenc {

constexpr size_t kShortestRun = 32;              // shorter runs do not repay the setup cost of a run
constexpr size_t kLongestRun = size_t{1} << 18;  // the error bounds of a run grow with its length

struct PositionRun {
  size_t rows;  // 1 .. `count`
  bool equally_spaced;
};

// Returns the run at the start of `count` > 0 positions: equally spaced rows, or rows to compute one by one.
//
// Equally spaced means without rounding: positions[i] equals positions[0] + i * step as a real number, and the numbers
// half a step from the first kShortestRun positions are doubles.
PositionRun FirstRun(const double* positions, size_t count);

}  // namespace posenc
