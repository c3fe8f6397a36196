// Position ids by a description of tokens or latents and the model's config.json.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "posenc/mapping/read.h"
#include "posenc/positions/description.h"
#include "posenc/positions/rules.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire {

struct ComputedPositions {
  std::shared_ptr<const ParsedConfig> file;  // null without a model
  const PositionRule* rule;
  ConfigObject model;  // refers to the file
  TokenDescription tokens;
  CountedPositions counted;
};

// Errors name the field within the request.
absl::StatusOr<ComputedPositions> ComputePositions(const Reader& reader, const v1::PositionsRequest& request);

// Shape of the tokens that positions are for.
enum class IdsFor { kTensor, kTable };

// Reader::ReadPositions() for a rotation or its table: a description becomes the ids that the source's model computes.
// Errors name the field within the request.
absl::StatusOr<Positions> ReadPositionsOf(const Reader& reader, const v1::RotarySource& rotary,
                                          const v1::Positions& message, IdsFor ids_for);

}  // namespace posenc::wire
