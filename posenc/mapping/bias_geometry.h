// Which queries meet which keys, and which cells are hidden: from messages to the library's types.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/settings/settings.h"
#include "posenc/v1/bias.pb.h"

namespace posenc::wire {

// Errors name the field from "geometry" or "mask" on.
absl::StatusOr<BiasGeometry> ReadGeometry(const Reader& reader, const v1::BiasGeometry& message);
absl::StatusOr<Mask> ReadMask(const Reader& reader, const v1::Mask& message);

}  // namespace posenc::wire
