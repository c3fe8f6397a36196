// The window of a Swin's or BEiT's bias, whose table comes with the request.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/model/part.h"

namespace posenc {

// window_size, in every stage whose tokens are at least as many.
absl::StatusOr<SwinSettings> SwinOf(Part& part);

// All patches of an image of image_size, where the file says that layers have the bias.
absl::StatusOr<BeitSettings> BeitOf(Part& part);

}  // namespace posenc
