#include "posenc/model/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "posenc/base/status.h"
#include "posenc/model/parts.h"

namespace posenc {
namespace {

// Places in the file that have its blocks.
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
  const bool copied = part.type.layers == Layers::kByTypeCopied;
  if ((nested || (copied && !blocks.empty())) &&
      part.type.block_theta != 0) {  // theta of the class, not of the layer type
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
  if (!blocks.empty() && copied) {
    result.block = blocks[0].second;
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

absl::Status TooFewEntries(const Part& part, std::string_view field, size_t entries) {
  return InvalidArgument("MISMATCH", part.config.Path(field), fmt::format("{} entries", entries),
                         "must have one entry per layer");
}

// Returns entry `layer` of a field that is a list with an entry for each layer, or a number for all; nullopt if it is
// absent or empty.
absl::StatusOr<std::optional<double>> EntryOf(const Part& part, std::string_view field, size_t layer) {
  const nlohmann::json* given = part.config.Find(field);
  if (given == nullptr || !given->is_array()) return part.config.Number({field});
  POSENC_ASSIGN_OR_RETURN(const auto list, part.config.Numbers(field));
  if (list->empty()) return std::nullopt;
  if (layer >= list->size()) return TooFewEntries(part, field, list->size());
  return (*list)[layer];
}

// Notes entries of a list that differ from the one which all layers of the type have.
absl::Status NoteOtherEntries(Part& part, std::string_view field, const std::string& layer_type, double used,
                              const std::vector<std::string>& of_layer) {
  const nlohmann::json* given = part.config.Find(field);
  if (given == nullptr || !given->is_array()) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(const auto list, part.config.Numbers(field));
  for (size_t n = 0; n < of_layer.size(); ++n) {
    if (of_layer[n] != layer_type) continue;
    if (n >= list->size()) return TooFewEntries(part, field, list->size());
    const double entry = (*list)[n];
    if (entry == used) continue;
    part.Say("NOT_USED", fmt::format("{}[{}]", part.config.Path(field), n),
             fmt::format("{} is ignored: all layers of type \"{}\" have the entry of the first one, {}", entry,
                         Quote(layer_type), used));
  }
  return absl::OkStatus();
}

// BlockFor for Layers::kByTypeFromLists. Blocks count only if rope_parameters has one for each type of the layers.
absl::StatusOr<LayerBlock> BlockFromLists(Part& part, const RopeBlocks& blocks, const std::string& layer_type,
                                          const std::vector<std::string>& of_layer) {
  const auto block_of = [&blocks](const std::string& type) {
    return std::find_if(blocks.begin(), blocks.end(), [&](const auto& b) { return b.first == type && b.second; });
  };
  const auto has_block = [&](const std::string& type) { return block_of(type) != blocks.end(); };
  const bool has_own = part.config.Find("rope_parameters") != nullptr && has_block(layer_type) &&
                       std::all_of(of_layer.begin(), of_layer.end(), has_block);
  if (has_own) return LayerBlock{block_of(layer_type)->second, part.type.theta, "", false};

  const auto first = std::find(of_layer.begin(), of_layer.end(), layer_type);
  const auto layer = first == of_layer.end() ? size_t{0} : static_cast<size_t>(first - of_layer.begin());
  RopeBlock block;
  block.complete = true;
  block.path = part.config.Path("rope_parameters");
  block.parameters.rope_type = "default";
  const bool scales = part.config.Find("rope_scaling") != nullptr && !blocks.empty();
  if (scales && IsByLayerType(blocks)) {
    return InvalidArgument("UNSUPPORTED", part.config.Path("rope_scaling"), "blocks of layer types",
                           fmt::format("must be one block for model_type \"{}\"", part.type.name));
  }
  if (scales && layer_type == "full_attention") {
    block = *blocks[0].second;
    block.complete = true;
    if (block.type_key == "type") LeaveDefault(part, block);
  } else if (!blocks.empty()) {
    part.Say("NOT_USED", BlocksPath(part),
             scales ? fmt::format("model_type \"{}\" reads it for full_attention layers only", part.type.name)
                    : fmt::format("model_type \"{}\" ignores it unless it has a block for each type of its layers",
                                  part.type.name));
  }
  RopeParameters& p = block.parameters;
  for (const auto& [field, setting, used] :
       {std::tuple{"rope_theta", "rope_theta", &p.rope_theta},
        {"partial_rotary_factors", "partial_rotary_factor", &p.partial_rotary_factor}}) {
    if (*used) continue;
    POSENC_ASSIGN_OR_RETURN(*used, EntryOf(part, field, layer));
    if (!*used) continue;
    part.Comes(fmt::format("rope_parameters.{}", setting), part.config.Path(field));
    POSENC_RETURN_IF_ERROR(NoteOtherEntries(part, field, layer_type, **used, of_layer));
  }
  return LayerBlock{std::move(block), part.type.theta, "", true};
}

// The rotated share of a head that DeepSeek-V4's class computes if neither a block nor the file gives it.
absl::StatusOr<double> ClassShare(Part& part, int64_t head_dim) {
  POSENC_ASSIGN_OR_RETURN(const auto width, part.config.Integer({"qk_rope_head_dim"}));
  if (!width || head_dim == 0) return *part.type.partial;
  part.Comes("rope_parameters.partial_rotary_factor", part.config.Path("qk_rope_head_dim"));
  return static_cast<double>(*width) / static_cast<double>(head_dim);
}

// One of the file's two blocks for Layers::kMainOrCompressed.
absl::StatusOr<LayerBlock> OwnBlock(Part& part, const RopeBlock& main, const RopeBlock& compress, bool compressed) {
  POSENC_ASSIGN_OR_RETURN(const auto outer, part.config.Number({"partial_rotary_factor"}));
  POSENC_ASSIGN_OR_RETURN(const auto indexed, part.config.Integer({"index_head_dim"}));
  POSENC_ASSIGN_OR_RETURN(const int64_t head_dim, HeadDimOf(part));
  LayerBlock result{compressed ? compress : main, part.type.theta, part.type.theta_field, false};
  auto& share = result.block->parameters.partial_rotary_factor;
  if (!share && !outer) {  // any scaling makes transformers fill in the class's share, also in the other block
    const bool scales = main.parameters.rope_type != "default" || compress.parameters.rope_type != "default";
    share = 1;
    if (scales) {
      POSENC_ASSIGN_OR_RETURN(share, ClassShare(part, head_dim));
    }
  }
  const bool whole = result.block->parameters.rope_type == "proportional";  // its tables have zeros for the rest
  const double rotated = (whole ? 1 : share.value_or(outer.value_or(1))) * static_cast<double>(head_dim);
  if (compressed && rotated > static_cast<double>(indexed.value_or(128))) {
    part.Say("WIDER_THAN_INDEXER", result.block->path + ".partial_rotary_factor",
             fmt::format("{} elements of a head rotate, more than index_head_dim, {}: transformers may fail", rotated,
                         indexed.value_or(128)));
  }
  return result;
}

// BlockFor for Layers::kMainOrCompressed. A file without both blocks scales only layers with a compressor, by its
// single block, which never multiplies cos and sin; theta and the rotated share lie outside.
absl::StatusOr<LayerBlock> MainOrCompressed(Part& part, const RopeBlocks& blocks, const std::string& layer_type) {
  const bool compressed = layer_type == kCompress;
  const auto block_of = [&blocks](std::string_view type) -> const RopeBlock* {
    const auto found =
        std::find_if(blocks.begin(), blocks.end(), [&](const auto& b) { return b.first == type && b.second; });
    return found == blocks.end() ? nullptr : &*found->second;
  };
  if (const RopeBlock* main = block_of(kMain), *compress = block_of(kCompress); main && compress) {
    return OwnBlock(part, *main, *compress, compressed);
  }
  RopeBlock block;
  block.path = BlocksPath(part);
  block.parameters.rope_type = "default";
  const bool single = !blocks.empty() && !IsByLayerType(blocks);
  if (compressed && single) {
    block = *blocks[0].second;
  } else if (!blocks.empty()) {
    part.Say("NOT_USED", block.path,
             single ? "scales only layers with a compressor" : "ignored unless it has the blocks main and compress");
  }
  RopeParameters& p = block.parameters;
  for (const auto& [name, field] :
       {std::pair{"rope_theta", &p.rope_theta}, {"partial_rotary_factor", &p.partial_rotary_factor}}) {
    if (*field) {
      part.Say("NOT_USED", fmt::format("{}.{}", block.path, name), "ignored: the field outside the block is read");
    }
  }
  const std::string_view theta_field = compressed ? "compress_rope_theta" : part.type.theta_field;
  POSENC_ASSIGN_OR_RETURN(p.rope_theta, part.config.Number({theta_field}));
  if (p.rope_theta) part.Comes("rope_parameters.rope_theta", part.config.Path(theta_field));
  POSENC_ASSIGN_OR_RETURN(p.partial_rotary_factor, part.config.Number({"partial_rotary_factor"}));
  if (!p.partial_rotary_factor) {
    POSENC_ASSIGN_OR_RETURN(const int64_t head_dim, HeadDimOf(part));
    POSENC_ASSIGN_OR_RETURN(p.partial_rotary_factor, ClassShare(part, head_dim));
  }
  if (p.rope_type == "yarn" && !p.attention_factor && !block.null_attention_factor) p.attention_factor = 1;
  if (p.truncate) {
    part.Say("NOT_USED", block.path + ".truncate", "not read from a layer type's block: true is used");
    p.truncate.reset();
  }
  block.complete = true;
  return LayerBlock{std::move(block), DefaultsOf(part.type, layer_type)->rope_theta, "", true};
}

}  // namespace

const LayerDefaults* DefaultsOf(const ModelType& type, std::string_view layer_type) {
  for (const LayerDefaults& defaults : type.by_layer) {
    if (defaults.layer_type == layer_type) return &defaults;
  }
  return nullptr;
}

absl::StatusOr<LayerBlock> BlockFor(Part& part, const RopeBlocks& blocks, const std::string& layer_type,
                                    const std::vector<std::string>& of_layer) {
  const bool nested = IsByLayerType(blocks);
  RopeBlock plain;
  plain.path = BlocksPath(part);
  plain.parameters.rope_type = "default";
  LayerBlock result{plain, part.type.theta, part.type.theta_field, !nested};
  if (LeavesOut(part, layer_type)) {
    result.block.reset();
    return result;
  }
  if (part.type.layers == Layers::kMainOrCompressed) return MainOrCompressed(part, blocks, layer_type);
  if (part.type.layers == Layers::kByTypeFromLists) return BlockFromLists(part, blocks, layer_type, of_layer);
  if (part.type.layers == Layers::kByType || part.type.layers == Layers::kByTypeFilled ||
      part.type.layers == Layers::kByTypeCopied) {
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
    if (part.type.query_scale == QueryScaleFunction::kMinistral3) result.block->llama_4_scaling_beta = 0.1;
    part.Say("DEFAULTED", "rope_parameters",
             fmt::format("absent: the default block of model_type \"{}\" is used", part.type.name));
  }
  return result;
}

}  // namespace posenc
