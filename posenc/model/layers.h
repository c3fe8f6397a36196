// Layer types of a part, and the scaling block of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/model/part.h"
#include "posenc/model/rope_block.h"

namespace posenc {

// Layer types of classes that list which layers rotate, not the layers' types.
inline constexpr std::string_view kRope = "rope", kNoRope = "no_rope";
// DeepSeek-V4's blocks: layers without a compressor, and those with one.
inline constexpr std::string_view kMain = "main", kCompress = "compress";

// Returns the number of layers; 0 if the file does not say it. Most: kMaxLayers.
absl::StatusOr<int64_t> LayerCount(const Part& part);

// Returns the type of each layer; empty if layers have no types, or if no list gives them and `layers` is 0 (unknown).
absl::StatusOr<std::vector<std::string>> LayerTypes(const Part& part, int64_t layers);

// False for linear_attention, conv, mamba, recurrent, moe, mlp and cross_attention layers, which no class rotates.
bool HasAttention(std::string_view layer_type);

// True if the class gives these layers no rotary embedding.
bool LeavesOut(const Part& part, std::string_view layer_type);

// Returns the theta in the name of a layer type of kThetaList; otherwise nullopt.
std::optional<double> ThetaOf(const Part& part, std::string_view layer_type);

// Scaling block of a layer type. nullopt: no rotary embedding.
struct LayerBlock {
  std::optional<RopeBlock> block;
  double class_theta;
  std::string_view theta_field;  // theta's name outside the block
  bool flat;                     // one block serves all layers
};

// Selects the block of a layer type. `of_layer`: the type of each layer, empty if unknown. INVALID_ARGUMENT if the
// file's blocks do not fit the class or lack this type.
absl::StatusOr<LayerBlock> BlockFor(Part& part, const RopeBlocks& blocks, const std::string& layer_type,
                                    const std::vector<std::string>& of_layer);

// Returns the class's defaults for a layer type, or null.
const LayerDefaults* DefaultsOf(const ModelType& type, std::string_view layer_type);

// True if the file has one block per layer type.
inline bool IsByLayerType(const RopeBlocks& blocks) { return !blocks.empty() && !blocks[0].first.empty(); }

}  // namespace posenc
