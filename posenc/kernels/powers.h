// Primitive: e^(exponent * log_base[i]), for results that are rounded only after a test; the same bytes on every
// processor.
//
// Where log_base[i] is wrong by at most u = 2^-53 of itself and the exponent by 2u, the relative error is at most half
// of errors[i]; the other half is for what the caller multiplies by. Beyond e^+-700 a power is not a number.
#pragma once

#include <cstddef>

namespace posenc {

void Powers(const double* log_base, double exponent, size_t count, double* powers, double* errors);

}  // namespace posenc
