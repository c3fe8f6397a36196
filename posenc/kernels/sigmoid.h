// Primitive: y = 1 / (1 + exp(-x)) of float64 numbers, in place; the same bytes on every processor.
//
// Within 4 units in the last place of float64 for |x| <= 700; beyond it 0 or 1. NaN stays NaN.
#pragma once

#include <cstddef>

namespace posenc {

void Sigmoid(double* values, size_t count);

}  // namespace posenc
