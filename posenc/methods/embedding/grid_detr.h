// One axis of DETR's grid (arXiv:2005.12872): angle_k = coordinate / temperature^(k / pairs). The coordinate is
// index + 1, or (index + 1 + offset) / (size + 1e-6) * scale if normalized.
#pragma once

#include <cstdint>
#include <vector>

#include "posenc/exact/arithmetic.h"
#include "posenc/settings/settings.h"

namespace posenc {

struct DetrAxis {
  int64_t size = 0;
  int64_t pairs = 0;
  double temperature = 0;
  bool normalize = true;
  double scale = 0;
  double offset = 0;

  // Returns the number that is added to an index before division and scaling.
  double shift() const { return normalize ? 1.0 + offset : 1.0; }
};

// Returns w_k under kExact, with angle_k = (index + shift) * w_k. Other arithmetics get temperature^(k / pairs), by
// which DetrAngles divides.
std::vector<double> DetrFrequencies(Frequencies arithmetic, const DetrAxis& axis);

// Returns `pairs` angles per index, by DETR's own operations. Requires kFloat32 or kFloat64.
std::vector<double> DetrAngles(Frequencies arithmetic, const DetrAxis& axis, const std::vector<int64_t>& indices,
                               const std::vector<double>& periods);

}  // namespace posenc
