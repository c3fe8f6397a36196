// The scaling block of each type of layers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "posenc/model/part.h"
#include "posenc/model/rope_block.h"

namespace posenc {

// The block that holds for a layer type. nullopt: no rope.
struct LayerBlock {
  std::optional<RopeBlock> block;
  double class_theta;
  std::string_view theta_field;  // outside the block
  bool flat;
};

// The block that holds for a layer type.
absl::StatusOr<LayerBlock> BlockFor(Part& part, const RopeBlocks& blocks, const std::string& layer_type);

// The class's own of a layer type, or null.
const LayerDefaults* DefaultsOf(const ModelType& type, std::string_view layer_type);

// Whether there is one block a layer type.
inline bool IsByLayerType(const RopeBlocks& blocks) { return !blocks.empty() && !blocks[0].first.empty(); }

}  // namespace posenc
