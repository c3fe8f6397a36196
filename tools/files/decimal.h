// Elements as the shortest decimals that read back to the same bits.
#pragma once

#include <cstdint>
#include <string>

namespace posenc {

// Appends a JSON number, or "NaN", "Infinity" or "-Infinity" in quotes. A negative zero is -0.0, because many readers
// take -0 for an integer.
void AppendDecimal(double value, std::string* out);
void AppendDecimal(float value, std::string* out);

// The two 16-bit types by their bits. The decimal is well inside the interval that rounds to the value, so that reading
// it by way of float32 or float64 gives the same bits too.
void AppendHalfDecimal(uint16_t bits, std::string* out);
void AppendBfloat16Decimal(uint16_t bits, std::string* out);

}  // namespace posenc
