// One axis of a learned table that is resized: the cells of the table's axis that each cell of the target's is a
// weighted sum of.
#pragma once

#include <gmpxx.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "posenc/settings/settings.h"

namespace posenc {

struct ResizeAxis {
  int64_t source = 1;
  int64_t target = 1;
  std::optional<double> scale_factor;
};

template <class Number>
struct AxisTaps {
  std::vector<int64_t> cells;  // 0 .. source - 1; one can occur twice
  std::vector<Number> weights;
};

// Number: mpq_class for the rational weights; float or double for those of `resize.operations`, each rounded.
template <class Number>
AxisTaps<Number> TapsOf(const TableResize& resize, const ResizeAxis& axis, int64_t index);

extern template AxisTaps<mpq_class> TapsOf(const TableResize&, const ResizeAxis&, int64_t);
extern template AxisTaps<float> TapsOf(const TableResize&, const ResizeAxis&, int64_t);
extern template AxisTaps<double> TapsOf(const TableResize&, const ResizeAxis&, int64_t);

}  // namespace posenc
