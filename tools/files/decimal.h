// Formats tensor elements as the shortest decimals that parse back to the same bits.
#pragma once

#include <cstdint>
#include <string>

namespace posenc {

// Appends a JSON number, or "NaN", "Infinity" or "-Infinity" in quotes. Negative zero is written as -0.0, because many
// readers parse -0 as an integer.
void AppendDecimal(double value, std::string* out);
void AppendDecimal(float value, std::string* out);

// Append a 16-bit float, given by its bits. The decimal is well inside the interval that rounds to the value, so
// parsing it via float32 or float64 gives the same bits too.
void AppendHalfDecimal(uint16_t bits, std::string* out);
void AppendBfloat16Decimal(uint16_t bits, std::string* out);

}  // namespace posenc
