// The rotary settings of a part's layers: what stands in the block, beside it, and in the model's class.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/model/part.h"
#include "posenc/model/rope_block.h"

namespace posenc {

// class_theta: the class's rope_theta for these layers. flat: one block serves all layers. Departures from the letter
// of the file become notes of the part.
absl::StatusOr<RotarySettings> RotaryOf(Part& part, RopeBlock block, double class_theta, bool flat);

}  // namespace posenc
