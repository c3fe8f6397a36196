// xPos (arXiv:2212.10554): cosines and sines at position p are multiplied by zeta_i^((p - centre) / scale_base) for q
// and divided by it for k, with zeta_i = (2i + 0.4 d) / (1.4 d).
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Fills in defaults. Returns INVALID_ARGUMENT naming the field that is missing or out of range.
absl::Status Complete(Xpos& xpos);

struct XposPlan {
  double centre = 0, scale_base = 0;
  int64_t dim = 0;               // d
  std::vector<double> zeta;      // in the arithmetic; not read under kExact, which uses the rational (10i + 2d) / (7d)
  std::vector<double> log_zeta;  // its natural logarithm, rounded to float64
};
XposPlan MakeXposPlan(Frequencies arithmetic, const Xpos& xpos, int64_t rotary_dim);

}  // namespace posenc
