// Scaling block of each layer type.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "posenc/model/part.h"
#include "posenc/model/rope_block.h"

namespace posenc {

// Scaling block of a layer type. nullopt: no rotary embedding.
struct LayerBlock {
  std::optional<RopeBlock> block;
  double class_theta;
  std::string_view theta_field;  // theta's name outside the block
  bool flat;                     // one block serves all layers
};

// Selects the block of a layer type. INVALID_ARGUMENT if the file's blocks do not fit the class or lack this type.
absl::StatusOr<LayerBlock> BlockFor(Part& part, const RopeBlocks& blocks, const std::string& layer_type);

// Returns the class's defaults for a layer type, or null.
const LayerDefaults* DefaultsOf(const ModelType& type, std::string_view layer_type);

// True if the file has one block per layer type.
inline bool IsByLayerType(const RopeBlocks& blocks) { return !blocks.empty() && !blocks[0].first.empty(); }

}  // namespace posenc
