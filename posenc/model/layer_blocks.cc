#include "posenc/model/layer_blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/status.h"
#include "posenc/model/layer_types.h"

namespace posenc {
namespace {

RopeBlock ClassBlock(const LayerDefaults& defaults) {
  RopeBlock block;
  block.parameters.rope_type = std::string(defaults.rope_type);
  block.parameters.partial_rotary_factor = defaults.partial;
  return block;
}

// BlockFor for Layers::kByType and kByTypeFilled.
absl::StatusOr<LayerBlock> BlockByType(Part& part, const RopeBlocks& blocks, const std::string& layer_type) {
  const LayerDefaults* own = DefaultsOf(part.type, layer_type);
  const bool fills = part.type.layers == Layers::kByTypeFilled && own != nullptr;
  const bool nested = IsByLayerType(blocks);
  LayerBlock result{std::nullopt, own != nullptr ? own->rope_theta : part.type.theta,
                    own != nullptr ? own->theta_field : part.type.theta_field, false};
  if (nested) {
    const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const auto& b) { return b.first == layer_type; });
    if (found != blocks.end() && found->second) {
      result.block = found->second;
      auto& partial = result.block->parameters.partial_rotary_factor;
      if (fills && !partial) partial = own->partial;
    } else if (fills) {
      result.block = ClassBlock(*own);
    } else if (found == blocks.end()) {
      return InvalidArgument("MISSING", part.config.Path("rope_parameters"), "",
                             fmt::format("has no block for layer type \"{}\"", Quote(layer_type)));
    }
    return result;
  }
  if (!blocks.empty() && part.config.Find("rope_scaling") != nullptr && own != nullptr && own->takes_rope_scaling) {
    result.block = blocks[0].second;
    result.flat = true;
    return result;
  }
  if (!blocks.empty() && !fills) {
    return InvalidArgument("CONFLICT", part.config.Path("rope_parameters"), "",
                           fmt::format("model_type \"{}\" needs one block per layer type", part.type.name));
  }
  if (!blocks.empty() && part.config.Find("rope_scaling") == nullptr) {
    // These classes read a single block from rope_scaling only; rope_parameters must have one block per layer type.
    part.Say("NOT_USED", "rope_parameters",
             fmt::format("model_type \"{}\" reads one block per layer type and ignores a single block: "
                         "the default blocks are used",
                         part.type.name));
  }
  if (own != nullptr) result.block = ClassBlock(*own);
  result.flat = true;
  return result;
}

}  // namespace

const LayerDefaults* DefaultsOf(const ModelType& type, std::string_view layer_type) {
  for (const LayerDefaults& defaults : type.by_layer) {
    if (defaults.layer_type == layer_type) return &defaults;
  }
  return nullptr;
}

absl::StatusOr<LayerBlock> BlockFor(Part& part, const RopeBlocks& blocks, const std::string& layer_type) {
  const bool nested = IsByLayerType(blocks);
  RopeBlock plain;
  plain.parameters.rope_type = "default";
  LayerBlock result{plain, part.type.theta, part.type.theta_field, !nested};
  if (LeavesOut(part, layer_type)) {
    result.block.reset();
    return result;
  }
  if (part.type.layers == Layers::kByType || part.type.layers == Layers::kByTypeFilled) {
    return BlockByType(part, blocks, layer_type);
  }
  if (nested) {
    const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const auto& b) { return b.first == layer_type; });
    if (found == blocks.end()) {
      return InvalidArgument("MISSING", part.config.Path("rope_parameters"), "",
                             fmt::format("has no block for layer type \"{}\"", Quote(layer_type)));
    }
    result.block = found->second;
  } else if (!blocks.empty()) {
    result.block = blocks[0].second;
  } else if (part.type.block) {
    result.block->parameters = *part.type.block;
    result.block->has_factor = true;
    result.block->has_query_scale = !part.type.query_scale_field.empty();
    part.Say("DEFAULTED", "rope_parameters",
             fmt::format("absent: the default block of model_type \"{}\" is used", part.type.name));
  }
  return result;
}

}  // namespace posenc
