// Position ids by a description of tokens or latents and the model's config.json.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/positions/description.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

struct ComputedPositions {
  CountedPositions counted;
  int64_t sequences, length;  // B, S
  std::string_view rule, sentence;
};

// Errors name the field within the request.
absl::StatusOr<ComputedPositions> ComputePositions(const Reader& reader, const v1::PositionsRequest& request);

}  // namespace posenc::wire
