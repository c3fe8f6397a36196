// Reads ApplyRotaryRequest.cached_keys.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/rotary/moved_keys.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

struct ReadKeys {
  CachedKeys keys;
  std::string parameters_field;  // as ResolvedRotary's
};

// `resolved`: the request's own rotary, of which only the rotation is kept; gets the notes. `to`: the request's
// positions. Errors name the field within the request.
absl::StatusOr<ReadKeys> ReadCachedKeys(const Reader& reader, const v1::ApplyRotaryRequest& request,
                                        const Positions& to, ResolvedRotary* resolved);

}  // namespace posenc::wire
