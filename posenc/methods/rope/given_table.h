// Tables of cosines and sines that the caller computed.
#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Reduces the table to half width, so that row p is [heads, rotary_dim / 2] pairs; a table of kPerElement stays as it
// is. Returns INVALID_ARGUMENT if an entry's two copies differ in any bit, or if the width does not fit the form.
absl::Status Complete(GivenTable& table, int64_t half_split_parts);

// Reduces a table of kPerElement to half width if the entries of each pair's elements have equal bits.
void ReduceIfEqual(GivenTable& table, Pairing pairing, int64_t half_split_parts);

// Writes one row of a completed table, converted to `dtype` (rounded once, or widened).
void CopyRow(const GivenTable& table, int64_t row, DType dtype, std::byte* cos, std::byte* sin);

}  // namespace posenc
