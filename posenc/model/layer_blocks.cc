#include "posenc/model/layers.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/status.h"
#include "posenc/model/parts.h"

namespace posenc {

std::string BlocksPath(const Part& part) { return part.config.PathOf({"rope_parameters", "rope_scaling"}); }

void LeaveDefault(Part& part, RopeBlock& block) {
  const RopeParameters& written = block.parameters;
  if (written.rope_type == "default") return;
  part.Say("NOT_USED", fmt::format("{}.type", block.path),
           fmt::format("model_type \"{}\" reads only rope_type here: the layers have no scaling", part.type.name));
  block.parameters = {
      .rope_type = "default", .rope_theta = written.rope_theta, .partial_rotary_factor = written.partial_rotary_factor};
}

namespace {

std::string BlockPath(const Part& part, std::string_view layer_type) {
  return fmt::format("{}.{}", BlocksPath(part), Quote(layer_type));
}

RopeBlock ClassBlock(const LayerDefaults& defaults) {
  RopeBlock block;
  block.parameters.rope_type = std::string(defaults.rope_type);
  block.parameters.partial_rotary_factor = defaults.partial;
  return block;
}

// UsualBlock for Layers::kByType and kByTypeFilled.
absl::StatusOr<LayerBlock> BlockByType(Part& part, const RopeBlocks& blocks, const std::string& layer_type) {
  const LayerDefaults* own = DefaultsOf(part.type, layer_type);
  const bool fills = part.type.layers == Layers::kByTypeFilled && own != nullptr;
  const bool nested = IsByLayerType(blocks);
  LayerBlock result{std::nullopt, own != nullptr ? own->rope_theta : part.type.theta,
                    own != nullptr ? own->theta_field : part.type.theta_field, false};
  if (nested && part.type.block_theta != 0) {  // theta of the class, not of the layer type
    result.class_theta = part.type.block_theta;
    result.theta_field = part.type.theta_field;
  }
  if (nested) {
    const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const auto& b) { return b.first == layer_type; });
    if (found != blocks.end() && found->second) {
      result.block = found->second;
      const bool lacks_theta = !fills && part.type.block_theta == 0 && !result.block->parameters.rope_theta;
      if (lacks_theta) {
        part.Say("DEFAULTED", fmt::format("{}.rope_theta", result.block->path),
                 fmt::format("absent: {} is used; transformers fails", result.class_theta));
      }
      auto& partial = result.block->parameters.partial_rotary_factor;
      const bool is_default = result.block->parameters.rope_type == "default";
      const bool has_share = fills || (own != nullptr && own->partial_of_default && is_default);
      if (has_share && !partial) partial = own->partial;
    } else if (fills) {
      result.block = ClassBlock(*own);
      const std::string path = BlockPath(part, layer_type);
      result.block->path = path;
      part.Say("DEFAULTED", path,
               fmt::format("absent: the default block of model_type \"{}\" is used", part.type.name));
    } else if (found == blocks.end()) {
      return InvalidArgument("MISSING", BlockPath(part, layer_type), "",
                             "must be given: the layers' type has no other block");
    }
    return result;
  }
  if (!blocks.empty() && part.config.Find("rope_scaling") != nullptr && own != nullptr && own->takes_rope_scaling) {
    result.block = blocks[0].second;
    if (result.block->type_key == "type") LeaveDefault(part, *result.block);
    return result;  // not flat: the class makes it the block of these layers
  }
  if (!blocks.empty() && !fills) {
    return InvalidArgument("CONFLICT", BlocksPath(part), "one block",
                           fmt::format("must be one block per layer type for model_type \"{}\"", part.type.name));
  }
  if (!blocks.empty() && part.config.Find("rope_scaling") == nullptr) {
    // These classes read a single block from rope_scaling only; rope_parameters must have one block per layer type.
    part.Say("NOT_USED", "rope_parameters",
             fmt::format("model_type \"{}\" reads one block per layer type and ignores a single block: "
                         "the default blocks are used",
                         part.type.name));
  }
  if (own != nullptr) {
    result.block = ClassBlock(*own);
    result.block->path = part.config.Path("rope_parameters");
  }
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

absl::StatusOr<LayerBlock> UsualBlock(Part& part, const RopeBlocks& blocks, const std::string& layer_type) {
  if (part.type.layers == Layers::kByType || part.type.layers == Layers::kByTypeFilled) {
    return BlockByType(part, blocks, layer_type);
  }
  const bool nested = IsByLayerType(blocks);
  RopeBlock plain;
  plain.path = BlocksPath(part);
  plain.parameters.rope_type = "default";
  LayerBlock result{plain, part.type.theta, part.type.theta_field, !nested};
  if (nested) {
    const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const auto& b) { return b.first == layer_type; });
    if (found == blocks.end()) {
      return InvalidArgument("MISSING", BlockPath(part, layer_type), "",
                             "must be given: the layers' type has no other block");
    }
    result.block = found->second;
  } else if (!blocks.empty()) {
    result.block = blocks[0].second;
  } else if (part.type.block) {
    result.block->parameters = *part.type.block;
    result.block->has_factor = true;
    if (part.type.query_scale == QueryScaleFunction::kMinistral3) result.block->llama_4_scaling_beta = 0.1;
    part.Say("DEFAULTED", "rope_parameters",
             fmt::format("absent: the default block of model_type \"{}\" is used", part.type.name));
  }
  return result;
}

absl::StatusOr<LayerBlock> BlockFor(Part& part, const RopeBlocks& blocks, const std::string& layer_type,
                                    const LayerTypeNames& of_layer) {
  if (LeavesOut(part, layer_type)) return LayerBlock{};
  const auto own = part.type.rules.layer_block;
  return own == nullptr ? UsualBlock(part, blocks, layer_type) : own(part, blocks, layer_type, of_layer);
}

}  // namespace posenc
