// The positions at which rows were rotated, measured under given frequencies: only their product can be observed.
#pragma once

#include <cstdint>
#include <vector>

#include "posenc/diagnose/angles.h"

namespace posenc::diagnose {

// The angle by which one pair of a token was turned, the frequency that is supposed, and one standard deviation.
struct PairAngle {
  double angle, inv_freq, deviation;
};

struct MeasuredPosition {
  // The position at which all angles fit. Meaningless if none does.
  double position = 0;
  // The least and the largest position at which they fit as well; the position itself if it is the only one.
  double least = 0, most = 0;
  bool fits = false;
  bool only() const { return fits && least == most; }
};

// Unwraps the angles from the slowest pair to the fastest, and keeps every winding that fits. Positions from -farthest
// to farthest are considered: whole ones, and if none of them fits, others.
MeasuredPosition MeasurePosition(std::vector<PairAngle> pairs, double farthest);

}  // namespace posenc::diagnose
