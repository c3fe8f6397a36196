// Primitive: powers[i] = e^(exponent * log_base[i]) with an error bound errors[i], for results that are rounded only
// after a test. The bytes are the same on every processor.
//
// If log_base[i] has a relative error of at most u = 2^-53 and the exponent of at most 2u, the power's relative error
// is at most errors[i] / 2; the other half is slack for the caller's arithmetic. |exponent * log_base[i]| > 700 gives
// NaN.
#pragma once

#include <cstddef>

namespace posenc {

void Powers(const double* log_base, double exponent, size_t count, double* powers, double* errors);

}  // namespace posenc
