// Measurement of xPos's scale, which multiplies the norms of pair i by zeta_i^((p - centre) / scale_base), those of k
// by the reciprocal (posenc/methods/rope/xpos.h). Without it, a rotation remains.
#pragma once

#include <optional>
#include <vector>

#include "posenc/diagnose/pairs.h"
#include "posenc/settings/settings.h"

namespace posenc::diagnose {

struct XposScale {
  Xpos xpos;  // relative to the stated positions
  bool divides = false;
};

// Fits a scale to the norms of the layout's pairs, which need not have one; absent if they do not change. Within the
// uncertainty, base and centre snap to `usual` (its centre also +-1), 512, integers and, for a centre, halves.
std::optional<XposScale> MeasureXpos(const Numbers& numbers, const PairLayout& layout,
                                     const std::vector<double>& positions, const std::optional<Xpos>& usual);

// Removes the scale from `after`.
void RemoveXpos(const XposScale& scale, const PairLayout& layout, const std::vector<double>& positions,
                Numbers* numbers);

}  // namespace posenc::diagnose
