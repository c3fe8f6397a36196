#include "posenc/model/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "posenc/base/status.h"

namespace posenc {
namespace {

constexpr std::string_view kThetaPrefix = "rope_theta ";

// kNoRopeList. Ignores layer_types, which describes the layers' windows.
absl::StatusOr<std::vector<std::string>> FromNoRopeList(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(auto rope, part.config.Numbers("no_rope_layers"));
  if (rope && rope->empty()) rope.reset();
  if (rope && static_cast<int64_t>(rope->size()) != layers) {
    return InvalidArgument("MISMATCH", part.config.Path("no_rope_layers"), fmt::format("{} entries", rope->size()),
                           fmt::format("must have one entry per layer: {}", layers));
  }
  POSENC_ASSIGN_OR_RETURN(const auto interval, part.config.Integer({"no_rope_layer_interval"}));
  const int64_t every = std::max<int64_t>(interval.value_or(4), 1);
  std::vector<std::string> types;
  for (int64_t n = 0; n < layers; ++n) {
    types.emplace_back((rope ? (*rope)[n] != 0 : (n + 1) % every != 0) ? kRope : kNoRope);
  }
  return types;
}

std::string ThetaName(double theta) {
  return theta == 0 ? std::string(kNoRope) : fmt::format("{}{}", kThetaPrefix, theta);
}

// kThetaList: layers with equal theta share a type.
absl::StatusOr<std::vector<std::string>> FromThetaList(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(const auto thetas, part.config.Numbers("layer_rope_theta"));
  if (!thetas || static_cast<int64_t>(thetas->size()) != layers) {
    return InvalidArgument("MISMATCH", part.config.Path("layer_rope_theta"),
                           thetas ? fmt::format("{} entries", thetas->size()) : "absent",
                           fmt::format("must have one entry per layer: {}", layers));
  }
  std::vector<std::string> types;
  for (double theta : *thetas) types.push_back(ThetaName(theta));
  return types;
}

// The types of a class whose file does not list them.
absl::StatusOr<std::vector<std::string>> FromPattern(const Part& part, int64_t layers) {
  const LayerPattern& pattern = part.type.pattern;
  std::vector<std::string> types;
  if (pattern.every == 0) return types;
  POSENC_ASSIGN_OR_RETURN(const auto cycle, part.config.Strings(pattern.cycle_field));
  POSENC_ASSIGN_OR_RETURN(const auto indices, part.config.Numbers(pattern.indices_field));
  std::optional<int64_t> given;
  if (!pattern.field.empty()) {
    POSENC_ASSIGN_OR_RETURN(given, part.config.Integer({pattern.field, "_sliding_window_pattern"}));
  }
  const int64_t every = std::max<int64_t>(given.value_or(pattern.every), 1);
  for (int64_t n = 0; n < layers; ++n) {
    if (cycle && !cycle->empty()) {
      types.push_back((*cycle)[n % cycle->size()]);
      continue;
    }
    if (!pattern.cycle[0].empty()) {
      types.emplace_back(n == 0 ? pattern.others : pattern.cycle[n % pattern.cycle.size()]);
      continue;
    }
    const bool regular = indices ? std::find(indices->begin(), indices->end(), n) != indices->end()
                                 : n % every == (pattern.at < 0 ? every - 1 : pattern.at % every);
    const bool is_last = n == layers - 1 && (pattern.last || pattern.last_always);
    types.emplace_back(regular || n < pattern.first || is_last ? pattern.full : pattern.others);
  }
  return types;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> LayerTypes(const Part& part, int64_t layers) {
  if (part.type.layers == Layers::kNoRopeList) return FromNoRopeList(part, layers);
  if (part.type.layers == Layers::kThetaList) {
    if (part.config.Find("layer_rope_theta") != nullptr) return FromThetaList(part, layers);
    std::vector<std::string> types;  // counted from the last layer
    if (part.type.pattern.every == 0) return types;
    for (int64_t left = layers - 1; left >= 0; --left) {
      types.emplace_back(left % part.type.pattern.every == 0 ? kNoRope : kRope);
    }
    return types;
  }
  for (std::string_view field : {"layer_types", "layers_block_type"}) {
    POSENC_ASSIGN_OR_RETURN(auto listed, part.config.Strings(field));
    if (!listed) continue;
    if (part.type.pattern.last_always && !listed->empty()) listed->back() = part.type.pattern.full;
    return *std::move(listed);
  }
  return FromPattern(part, layers);
}

bool LeavesOut(const Part& part, std::string_view layer_type) {
  switch (part.type.layers) {
    case Layers::kSlidingOnly: return layer_type == "full_attention";
    case Layers::kSlidingOnlyInWindow:
      return layer_type == "full_attention" ||
             (part.config.tree().contains("sliding_window") && part.config.Find("sliding_window") == nullptr);
    case Layers::kSlidingOnlyIfWindow:
      return layer_type == "full_attention" &&
             !(part.config.tree().contains("sliding_window") && part.config.Find("sliding_window") == nullptr);
    case Layers::kNoRopeList:
    case Layers::kThetaList: return layer_type == kNoRope;
    default: return !HasAttention(layer_type);
  }
}

bool HasAttention(std::string_view layer_type) {
  for (std::string_view other : {"linear_attention", "conv", "mamba", "recurrent", "moe", "mlp", "cross_attention"}) {
    if (layer_type == other) return false;
  }
  return true;
}

std::optional<double> ThetaOf(const Part& part, std::string_view layer_type) {
  if (part.type.layers != Layers::kThetaList || !layer_type.starts_with(kThetaPrefix)) return std::nullopt;
  double theta = 0;
  layer_type.remove_prefix(kThetaPrefix.size());
  std::from_chars(layer_type.data(), layer_type.data() + layer_type.size(), theta);
  return theta;
}

namespace {

// Where the file has its blocks.
std::string BlocksPath(const Part& part) { return part.config.PathOf({"rope_parameters", "rope_scaling"}); }
std::string BlockPath(const Part& part, std::string_view layer_type) {
  return fmt::format("{}.{}", BlocksPath(part), Quote(layer_type));
}

RopeBlock ClassBlock(const LayerDefaults& defaults) {
  RopeBlock block;
  block.parameters.rope_type = std::string(defaults.rope_type);
  block.parameters.partial_rotary_factor = defaults.partial;
  return block;
}

// These classes add rope_scaling to a block whose rope_type is "default", so that the older key `type` is not read.
void LeaveDefault(Part& part, RopeBlock& block) {
  const RopeParameters& written = block.parameters;
  if (written.rope_type == "default") return;
  part.Say("NOT_USED", fmt::format("{}.type", block.path),
           fmt::format("model_type \"{}\" reads only rope_type here: the layers have no scaling", part.type.name));
  block.parameters = {
      .rope_type = "default", .rope_theta = written.rope_theta, .partial_rotary_factor = written.partial_rotary_factor};
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
      if (!fills && !result.block->parameters.rope_theta && own != nullptr) {
        part.Say("DEFAULTED", fmt::format("{}.rope_theta", result.block->path),
                 fmt::format("absent: {} is used; transformers fails", own->rope_theta));
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
    result.flat = true;
    return result;
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

absl::StatusOr<LayerBlock> BlockFor(Part& part, const RopeBlocks& blocks, const std::string& layer_type) {
  const bool nested = IsByLayerType(blocks);
  RopeBlock plain;
  plain.path = BlocksPath(part);
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
      return InvalidArgument("MISSING", BlockPath(part, layer_type), "",
                             "must be given: the layers' type has no other block");
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
