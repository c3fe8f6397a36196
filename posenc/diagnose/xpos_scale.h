// xPos's scale, measured: it changes the norms of pair i by zeta_i^((p - centre) / scale_base), those of k by the
// reciprocal (posenc/methods/rope/xpos.h). Without it, what is left is a rotation.
#pragma once

#include <optional>
#include <vector>

#include "posenc/diagnose/pairs.h"
#include "posenc/settings/settings.h"

namespace posenc::diagnose {

struct XposScale {
  Xpos xpos;  // at the positions that are said
  bool divides = false;
};

// What the norms of the layout's pairs show; they need not show one. Where they are as near as what is measured is
// certain, numbers of `usual` (a centre one off, too), 512, whole ones and, of a centre, halves are taken for it.
std::optional<XposScale> MeasureXpos(const Numbers& numbers, const PairLayout& layout,
                                     const std::vector<double>& positions, const std::optional<Xpos>& usual);

// Takes it out of `after`.
void RemoveXpos(const XposScale& scale, const PairLayout& layout, const std::vector<double>& positions,
                Numbers* numbers);

}  // namespace posenc::diagnose
