// Reads descriptions of tokens and latents, from which position ids are computed.
#pragma once

#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/positions/description.h"
#include "posenc/positions/latents.h"
#include "posenc/v1/positions.pb.h"

namespace posenc::wire {

// Errors name the field within the message.
absl::StatusOr<TokenDescription> ReadTokens(const Reader& reader, const v1::TokenDescription& message);

absl::StatusOr<LatentDescription> ReadLatents(const Reader& reader, const v1::LatentDescription& message);

}  // namespace posenc::wire
