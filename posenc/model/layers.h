// Layer types of a part, and the scaling block of each.
#pragma once

#include <cstdint>
#include <initializer_list>
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
// Returns the number of layers; 0 if the file does not say it. Most: kMaxLayers.
absl::StatusOr<int64_t> LayerCount(const Part& part);

// Returns the n of a field that selects every n-th layer; nullopt if it is absent.
absl::StatusOr<std::optional<int64_t>> EveryNth(const Part& part, std::initializer_list<std::string_view> names);

// Returns the type of each layer; empty if layers have no types, or if no list gives them and `layers` is 0 (unknown).
absl::StatusOr<LayerTypeNames> LayerTypes(const Part& part, int64_t layers);

// LayerTypes() of a class without a rule: the file's list, or else the class's pattern.
absl::StatusOr<LayerTypeNames> ListedOrPattern(const Part& part, int64_t layers);
absl::StatusOr<std::optional<LayerTypeNames>> ListedTypes(const Part& part);

// False for linear_attention, conv, mamba, recurrent, moe, mlp and cross_attention layers, which no class rotates.
bool HasAttention(std::string_view layer_type);

// True if the class gives these layers no rotary embedding.
bool LeavesOut(const Part& part, std::string_view layer_type);

// Scaling block of a layer type. nullopt: no rotary embedding.
struct LayerBlock {
  std::optional<RopeBlock> block;
  double class_theta = 0;
  std::string_view theta_field = "";  // theta's name outside the block
  bool flat = false;                  // one block serves all layers
};

// Selects the block of a layer type. `of_layer`: the type of each layer, empty if unknown. INVALID_ARGUMENT if the
// file's blocks do not fit the class or lack this type.
absl::StatusOr<LayerBlock> BlockFor(Part& part, const RopeBlocks& blocks, const std::string& layer_type,
                                    const LayerTypeNames& of_layer);

// BlockFor() of a class without a rule, for a type that it does not leave out.
absl::StatusOr<LayerBlock> UsualBlock(Part& part, const RopeBlocks& blocks, const std::string& layer_type);

// Places in the file that have its blocks.
std::string BlocksPath(const Part& part);

// Makes a scaled block one of rope_type "default", with a note: classes that add rope_scaling to a block whose
// rope_type is "default" do not read the older key `type`.
void LeaveDefault(Part& part, RopeBlock& block);

// Returns the class's defaults for a layer type, or null.
const LayerDefaults* DefaultsOf(const ModelType& type, std::string_view layer_type);

// True if the file has one block per layer type.
inline bool IsByLayerType(const RopeBlocks& blocks) { return !blocks.empty() && !blocks[0].first.empty(); }

}  // namespace posenc
