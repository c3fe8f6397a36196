// A simple cosine and sine of a table entry: many bits, then one rounding. Shares nothing with posenc/kernels.
#pragma once

#include "posenc/kernels/sincos_rows.h"

namespace posenc {

struct OracleEntry {
  double cos;
  double sin;
};

// The entry of `work` at this position and frequency, by its recipe. `bits` of precision must be more than the hardest
// entry of the test needs.
OracleEntry SinCosOracle(const SinCosRows& work, double position, double inv_freq, int bits = 400);

// The entry of `work`, which has from_positions.
OracleEntry DifferenceOracle(const SinCosRows& work, size_t row, size_t pair, int bits = 400);

// Element `index` of an array of dtype, as a double.
double Element(const void* data, size_t index, DType dtype);

}  // namespace posenc
