// One axis of DETR's grid (arXiv:2005.12872): angle_k = coordinate / temperature^(k / pairs), where the coordinate is
// index + 1, normalised: (index + 1 + offset) / (size + 1e-6) * scale.
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

  // What is added to an index before it is divided and multiplied.
  double shift() const { return normalize ? 1.0 + offset : 1.0; }
};

// w_k over the real numbers, with angle_k = (index + shift) * w_k; in the other arithmetics temperature^(k / pairs), by
// which DetrAngles divides.
std::vector<double> DetrFrequencies(Frequencies arithmetic, const DetrAxis& axis);

// The angles of these indices, `pairs` each, by DETR's own chain: kFloat32 or kFloat64.
std::vector<double> DetrAngles(Frequencies arithmetic, const DetrAxis& axis, const std::vector<int64_t>& indices,
                               const std::vector<double>& periods);

}  // namespace posenc
