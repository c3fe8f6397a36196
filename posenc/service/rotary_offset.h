// Place of the rotated elements in a head row, in requests with a model and without.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "posenc/mapping/rotary_source.h"

namespace posenc::wire {

// Returns the first element that rotates in head rows of `width` elements, given the operand's fields of these names.
// Heads of a model's width rotate where the model rotates them; a note says so if this is not the start. MISSING
// (NAME.rotary_offset) if the heads have another width. `width` 0: not known, because the tensor has no axes.
absl::StatusOr<int64_t> RotaryOffset(const std::string& name, int64_t rotary_offset, bool rotates_first, int64_t width,
                                     ResolvedRotary* resolved);

}  // namespace posenc::wire
