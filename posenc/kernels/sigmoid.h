// Primitive: y = 1 / (1 + exp(-x)) of float64 numbers, in place, with the same bytes on every processor.
//
// The error is at most 4 units in the last place for |x| <= 700; beyond it the result is 0 or 1. NaN stays NaN.
#pragma once

#include <cstddef>

namespace posenc {

void Sigmoid(double* values, size_t count);

}  // namespace posenc
