#include "posenc/model/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "posenc/base/status.h"
#include "posenc/model/layers.h"
#include "posenc/model/rope_block.h"

namespace posenc {
namespace {

constexpr size_t kMaxLayerTypes = 16;  // each is read, listed and explained; models have up to three

// Returns INVALID_ARGUMENT (UNSUPPORTED) if the file does not switch the rotary embedding on.
absl::Status CheckHasRotary(const Part& part) {
  const Condition& wanted = part.type.only_if;
  if (wanted.field.empty()) return absl::OkStatus();
  std::string value = wanted.if_absent ? std::string(wanted.value) : "absent";
  if (const nlohmann::json* field = part.config.Find(wanted.field)) {
    value = field->is_string() ? field->get<std::string>() : field->dump();
  }
  if (value == wanted.value) return absl::OkStatus();
  return InvalidArgument(
      "UNSUPPORTED", part.config.Path(wanted.field), value,
      fmt::format("model_type \"{}\" has a rotary embedding only if this is {}", part.type.name, wanted.value));
}

// A file of unknown model_type without any of these fields has no known positional encoding.
bool MentionsRope(const Part& part) {
  for (std::string_view name : {"rope_theta", "rope_scaling", "rope_parameters", "rotary_dim", "rotary_pct"}) {
    if (part.config.Find(name) != nullptr) return true;
  }
  return false;
}

// Sets part.layer_head_dim if these layers have their own head width.
absl::Status ReadHeadDim(Part& part, const std::string& layer_type, const std::vector<uint32_t>& layers) {
  if (const LayerDefaults* own = DefaultsOf(part.type, layer_type); own != nullptr && own->head_dim != 0) {
    POSENC_ASSIGN_OR_RETURN(const auto given, part.config.Integer({own->head_dim_field}));
    part.layer_head_dim = given.value_or(own->head_dim);
  }
  POSENC_ASSIGN_OR_RETURN(const auto per_layer, part.config.Object("per_layer_config"));
  if (!per_layer || layers.empty()) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(const auto first, per_layer->Object(std::to_string(layers[0])));
  if (!first) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(const auto given, first->Integer({part.type.mla ? "qk_rope_head_dim" : "head_dim"}));
  if (given) part.layer_head_dim = *given;
  return absl::OkStatus();
}

// Distinct layer types, and the type of each layer. of_layer is empty if unknown or if the only type is "".
struct Types {
  std::vector<std::string> distinct;
  std::vector<std::string> of_layer;
};

absl::StatusOr<Types> TypesOf(const Part& part, const RopeBlocks& blocks, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(std::vector<std::string> types, LayerTypes(part, layers));
  // Ordered by first occurrence.
  std::vector<std::string> distinct;
  for (const std::string& type : types) {
    if (std::find(distinct.begin(), distinct.end(), type) == distinct.end()) distinct.push_back(type);
    if (distinct.size() > kMaxLayerTypes) break;
  }
  const bool too_many_listed = distinct.size() > kMaxLayerTypes;
  const bool nested = IsByLayerType(blocks);
  // DeepSeek-V4's blocks have other labels than its layer_types: layer_types is ignored if no label matches.
  const auto is_label = [&](const std::string& type) {
    if (!nested) return DefaultsOf(part.type, type) != nullptr;
    return std::any_of(blocks.begin(), blocks.end(), [&type](const auto& block) { return block.first == type; });
  };
  if ((nested || !part.type.by_layer.empty()) && !too_many_listed &&
      std::none_of(distinct.begin(), distinct.end(), is_label)) {
    types.clear();
  }
  const bool some_lack_attention = std::any_of(types.begin(), types.end(), std::not_fn(HasAttention));
  const bool differ =
      nested || some_lack_attention ||
      (part.type.layers != Layers::kUniform && !(part.type.layers == Layers::kThetaList && types.empty()));
  if (!differ && !too_many_listed) {
    distinct = {""};
  } else if (types.empty() && part.type.layers == Layers::kNoRopeList) {
    distinct = {std::string(kRope), std::string(kNoRope)};
  } else if (types.empty() && nested) {
    distinct.clear();
    for (const auto& [layer_type, block] : blocks) distinct.push_back(layer_type);
  } else if (types.empty() && !part.type.by_layer.empty()) {
    distinct.clear();
    for (const LayerDefaults& own : part.type.by_layer) distinct.emplace_back(own.layer_type);
  } else if (types.empty()) {
    distinct = {"sliding_attention", "full_attention"};
  }

  if (distinct.size() > kMaxLayerTypes) {
    return InvalidArgument("OUT_OF_RANGE", part.config.Path(too_many_listed ? "layer_types" : "rope_parameters"),
                           "too many", fmt::format("must name at most {} different layer types", kMaxLayerTypes));
  }
  if (!differ) types.clear();
  return Types{std::move(distinct), std::move(types)};
}

}  // namespace

absl::StatusOr<std::vector<ModelLayers>> RotaryLayersOf(const Part& part, const ModelLayers& common) {
  POSENC_RETURN_IF_ERROR(CheckHasRotary(part));
  if (!part.known && !MentionsRope(part)) {
    return InvalidArgument("UNSUPPORTED", part.config.Path("model_type"), "",
                           "is not known, and the file has none of rope_theta, rope_scaling, rope_parameters, "
                           "rotary_dim and rotary_pct");
  }

  POSENC_ASSIGN_OR_RETURN(const RopeBlocks blocks, ReadRopeBlocks(part.config, part.type));
  POSENC_ASSIGN_OR_RETURN(const Types types, TypesOf(part, blocks, static_cast<int64_t>(common.layer_index.size())));
  std::vector<ModelLayers> result;
  for (const std::string& layer_type : types.distinct) {
    Part own = part;  // a copy: notes are per layer type
    ModelLayers entry = common;
    entry.layer_type = layer_type;
    entry.scales_softmax = part.type.mla;
    if (!types.of_layer.empty()) {
      entry.layer_index.clear();
      for (size_t n = 0; n < types.of_layer.size(); ++n) {
        if (types.of_layer[n] == layer_type) entry.layer_index.push_back(static_cast<uint32_t>(n));
      }
    }
    POSENC_ASSIGN_OR_RETURN(LayerBlock block, BlockFor(own, blocks, layer_type));
    if (block.block) {
      if (const auto theta = ThetaOf(part, layer_type)) block.block->parameters.rope_theta = *theta;
      POSENC_RETURN_IF_ERROR(ReadHeadDim(own, layer_type, entry.layer_index));
      auto settings = RotaryOf(own, *std::move(block.block), {block.class_theta, block.theta_field, block.flat});
      if (!settings.ok()) return Within("config_json", settings.status());
      entry.rotary = *std::move(settings);
    } else {
      own.Say("NO_ROPE", "layer_type", fmt::format("layers of type \"{}\" have no rotary embedding", layer_type));
    }
    entry.notes = std::move(own.notes);
    result.push_back(std::move(entry));
  }
  return result;
}

}  // namespace posenc
