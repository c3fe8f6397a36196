// The rotary settings of a part's layers: what stands in the block, beside it, and in the model's class.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "posenc/model/part.h"
#include "posenc/model/rope_block.h"

namespace posenc {

// What surrounds a block.
struct BlockContext {
  double class_theta;            // the class's rope_theta for these layers
  std::string_view theta_field;  // its name outside the block; "": none
  bool flat;                     // one block serves all layers
};

// Departures from the letter of the file become notes of the part.
absl::StatusOr<RotarySettings> RotaryOf(Part& part, RopeBlock block, const BlockContext& context);

}  // namespace posenc
