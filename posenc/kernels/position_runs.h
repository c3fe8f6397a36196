// Which of the positions are equally spaced.
#pragma once

#include <cstddef>

namespace posenc {

constexpr size_t kShortestRun = 32;              // fewer rows do not pay for what is computed once a run
constexpr size_t kLongestRun = size_t{1} << 18;  // the error bounds of a run grow with its length

struct PositionRun {
  size_t rows;  // at least 1, of `count`
  bool equally_spaced;
};

// What the `count` > 0 positions begin with: a run of equally spaced ones, or rows to be taken one by one.
//
// Equally spaced means without any rounding: positions[i] is positions[0] + i * step as a real number, and so are the
// numbers half a step from the first kShortestRun ones doubles.
PositionRun FirstRun(const double* positions, size_t count);

}  // namespace posenc
