#include "posenc/model/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/model/config_json.h"
#include "posenc/model/model_types.h"
#include "posenc/model/part.h"
#include "posenc/model/part_alibi.h"
#include "posenc/model/part_rotary.h"
#include "posenc/model/part_t5.h"
#include "posenc/model/rope_block.h"
#include "posenc/status.h"

namespace posenc {
namespace {

constexpr int64_t kMaxLayers = 100000;
constexpr size_t kMaxLayerTypes = 16;  // each is read, listed and explained; models have up to three
absl::StatusOr<ConfigObject> SelectComponent(const nlohmann::json& file, const std::string& component) {
  const ConfigObject whole("", file);
  if (component == "encoder" || component == "decoder") {  // of a T5, whose file does not say
    POSENC_ASSIGN_OR_RETURN(const auto name, whole.String("model_type"));
    const ModelType* type = name ? FindModelType(*name) : nullptr;
    if (type != nullptr && type->t5) return whole;
  }
  POSENC_ASSIGN_OR_RETURN(const auto text, whole.Object("text_config"));
  if (!component.empty() && component != "text") {
    return InvalidArgument(
        "UNKNOWN_VALUE", "component", component,
        text ? "this file has the component \"text\"" : "this file has no such component: leave it out");
  }
  return text ? *text : whole;
}

absl::StatusOr<Part> OpenPart(const ModelSource& source, const nlohmann::json& file) {
  POSENC_ASSIGN_OR_RETURN(const ConfigObject config, SelectComponent(file, source.component));
  POSENC_ASSIGN_OR_RETURN(const auto name, config.String("model_type"));
  const ModelType* known = name ? FindModelType(*name) : nullptr;
  Part part{config, {}, known != nullptr, {}};
  if (known != nullptr) {
    part.type = *known;
  } else {
    if (!source.input_pairing) {
      return InvalidArgument(
          "MISSING", "input_pairing", "",
          fmt::format("model_type \"{}\" is not known: say PAIRING_INTERLEAVED or PAIRING_HALF_SPLIT, "
                      "and the file is read by the general rules",
                      Quote(name.value_or(""))));
    }
    part.type = *FindModelType("llama");
    part.type.partial = Partial::kHonoured;
    part.Say("UNKNOWN_MODEL_TYPE", config.Path("model_type"),
             fmt::format("\"{}\" is not known: read by the general rules, with the pairing of the request",
                         Quote(name.value_or(""))));
  }
  if (part.type.reads_interleave) {
    POSENC_ASSIGN_OR_RETURN(const auto interleave, config.Bool("rope_interleave"));
    if (!interleave.value_or(true)) part.type.input_pairing = Pairing::kHalfSplit;
  }
  if (source.input_pairing) {
    if (known != nullptr && *source.input_pairing != part.type.input_pairing) {
      part.Say("PAIRING_OVERRIDDEN", "input_pairing", "differs from the model class's own, as the request says");
    }
    part.type.input_pairing = part.type.output_pairing = *source.input_pairing;
  }
  if (source.output_pairing) part.type.output_pairing = *source.output_pairing;
  return part;
}

// The type of each layer; empty where all are the same or their number is not known.
absl::StatusOr<std::vector<std::string>> LayerTypes(const Part& part, int64_t layers) {
  std::vector<std::string> types;
  if (part.type.layers == Layers::kNoRopeList) {  // whatever layer_types says of their windows
    POSENC_ASSIGN_OR_RETURN(const auto rope, part.config.Numbers("no_rope_layers"));
    if (rope && static_cast<int64_t>(rope->size()) != layers) {
      return InvalidArgument("MISMATCH", part.config.Path("no_rope_layers"), fmt::format("{} entries", rope->size()),
                             fmt::format("must be one a layer: {}", layers));
    }
    POSENC_ASSIGN_OR_RETURN(const auto interval, part.config.Integer({"no_rope_layer_interval"}));
    const int64_t every = std::max<int64_t>(interval.value_or(4), 1);
    for (int64_t n = 0; n < layers; ++n) {
      types.push_back((rope ? (*rope)[n] != 0 : (n + 1) % every != 0) ? "rope" : "no_rope");
    }
    return types;
  }
  POSENC_ASSIGN_OR_RETURN(const auto listed, part.config.Strings("layer_types"));
  if (listed) return *listed;
  if (part.type.sliding_pattern != 0) {
    POSENC_ASSIGN_OR_RETURN(const auto pattern,
                            part.config.Integer({"sliding_window_pattern", "_sliding_window_pattern"}));
    const int64_t every = std::max<int64_t>(pattern.value_or(part.type.sliding_pattern), 1);
    for (int64_t n = 0; n < layers; ++n) types.push_back((n + 1) % every != 0 ? "sliding_attention" : "full_attention");
  }
  return types;
}

// The block that holds for a layer type, and the class's theta for it. nullopt: no rope.
struct LayerBlock {
  std::optional<RopeBlock> block;
  double class_theta;
  bool flat;
};

absl::StatusOr<LayerBlock> BlockFor(Part& part, const RopeBlocks& blocks, const std::string& layer_type) {
  RopeBlock plain;
  plain.parameters.rope_type = "default";
  const bool nested = !blocks.empty() && !blocks[0].first.empty();
  const bool local = part.type.layers == Layers::kLocalGlobal && layer_type == "sliding_attention";
  LayerBlock result{plain, local ? part.type.local_rope_theta : part.type.rope_theta, !nested};
  const bool without = (part.type.layers == Layers::kSlidingOnly && layer_type == "full_attention") ||
                       (part.type.layers == Layers::kNoRopeList && layer_type == "no_rope");
  if (without) {
    result.block.reset();
  } else if (nested) {
    const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const auto& b) { return b.first == layer_type; });
    const bool given = found != blocks.end() && found->second;
    if (given) {
      result.block = found->second;
    } else if (part.type.layers == Layers::kLocalGlobal) {
      // These classes put a default block where there is none or null.
    } else if (found != blocks.end()) {
      result.block.reset();
    } else {
      return InvalidArgument("MISSING", part.config.Path("rope_parameters"), "",
                             fmt::format("has no block for layer type \"{}\"", Quote(layer_type)));
    }
  } else if (part.type.layers == Layers::kLocalGlobal && !blocks.empty() &&
             part.config.Find("rope_scaling") == nullptr) {
    // These classes look for blocks by layer type in rope_parameters, and for one block in rope_scaling only.
    part.Say("NOT_USED", "rope_parameters",
             fmt::format("model_type \"{}\" reads blocks by layer type there, and this is "
                         "one for all: default blocks are taken",
                         part.type.model_type));
  } else if (!blocks.empty() && !local) {
    result.block = blocks[0].second;
  } else if (blocks.empty() && part.type.block) {
    result.block->parameters = *part.type.block;
    result.block->has_factor = true;
    result.block->has_other_field = !part.type.query_scale_field.empty();
    part.Say("DEFAULTED", "rope_parameters",
             fmt::format("absent: the block of model_type \"{}\" itself is taken", part.type.model_type));
  }
  if (local && result.block && !result.block->parameters.rope_theta) {
    // The top-level rope_theta is for the full_attention layers.
    POSENC_ASSIGN_OR_RETURN(const auto theta, part.config.Number({"rope_local_base_freq"}));
    result.block->parameters.rope_theta = theta.value_or(part.type.local_rope_theta);
  }
  return result;
}

// Without any of these, a file of unknown type has no positional encoding that we know of.
bool MentionsRope(const Part& part) {
  for (std::string_view name : {"rope_theta", "rope_scaling", "rope_parameters", "rotary_dim", "rotary_pct"}) {
    if (part.config.Find(name) != nullptr) return true;
  }
  return false;
}

}  // namespace

absl::StatusOr<std::vector<ModelLayers>> ReadModel(const ModelSource& source, const Limits& limits) {
  POSENC_ASSIGN_OR_RETURN(const nlohmann::json file, ParseConfigJson(source.config_json, limits));
  POSENC_ASSIGN_OR_RETURN(Part part, OpenPart(source, file));
  POSENC_ASSIGN_OR_RETURN(const auto counted,
                          part.config.Integer({"num_hidden_layers", "n_layer", "n_layers", "num_layers"}));
  const int64_t layers = counted.value_or(0);
  if (layers > kMaxLayers) {
    return InvalidArgument("OUT_OF_RANGE", part.config.Path("num_hidden_layers"), fmt::format("{}", layers),
                           fmt::format("must be at most {}", kMaxLayers));
  }

  ModelLayers common;
  common.precision = part.type.precision;
  for (int64_t n = 0; n < layers; ++n) common.layer_index.push_back(static_cast<uint32_t>(n));
  POSENC_ASSIGN_OR_RETURN(const bool has_alibi, HasAlibi(part));
  if (has_alibi || part.type.t5) {
    if (has_alibi) {
      POSENC_ASSIGN_OR_RETURN(common.bias, AlibiOf(part));
    } else {
      POSENC_ASSIGN_OR_RETURN(common.bias, T5Of(part, source.component));
    }
    common.notes = std::move(part.notes);
    return std::vector<ModelLayers>{std::move(common)};
  }
  if (!part.known && !MentionsRope(part)) {
    return InvalidArgument("UNSUPPORTED", part.config.Path("model_type"), "",
                           "is not known, and the file holds no rope_theta, rope_scaling or rope_parameters");
  }

  POSENC_ASSIGN_OR_RETURN(const RopeBlocks blocks, ReadRopeBlocks(part.config, part.type.query_scale_field));
  POSENC_ASSIGN_OR_RETURN(std::vector<std::string> types, LayerTypes(part, layers));
  const bool nested = !blocks.empty() && !blocks[0].first.empty();
  const bool differ = nested || part.type.layers != Layers::kUniform;
  // Distinct types in the order of their first layer; "" for a model whose layers are all the same.
  std::vector<std::string> distinct;
  if (!differ) {
    distinct = {""};
  } else if (types.empty() && part.type.layers == Layers::kNoRopeList) {
    distinct = {"rope", "no_rope"};
  } else if (types.empty() && nested) {
    for (const auto& [layer_type, block] : blocks) distinct.push_back(layer_type);
  } else if (types.empty()) {
    distinct = {"sliding_attention", "full_attention"};
  } else {
    for (const std::string& type : types) {
      if (std::find(distinct.begin(), distinct.end(), type) == distinct.end()) distinct.push_back(type);
      if (distinct.size() > kMaxLayerTypes) break;
    }
  }

  if (distinct.size() > kMaxLayerTypes) {
    return InvalidArgument("OUT_OF_RANGE", part.config.Path(types.empty() ? "rope_parameters" : "layer_types"),
                           "more types", fmt::format("at most {} different types of layer", kMaxLayerTypes));
  }
  std::vector<ModelLayers> result;
  for (const std::string& layer_type : distinct) {
    Part own = part;  // notes are by layer type
    ModelLayers entry = common;
    entry.layer_type = layer_type;
    entry.scales_softmax = part.type.scales_softmax;
    if (differ && !types.empty()) {
      entry.layer_index.clear();
      for (size_t n = 0; n < types.size(); ++n) {
        if (types[n] == layer_type) entry.layer_index.push_back(static_cast<uint32_t>(n));
      }
    }
    POSENC_ASSIGN_OR_RETURN(LayerBlock block, BlockFor(own, blocks, layer_type));
    if (block.block) {
      auto settings = RotaryOf(own, *std::move(block.block), block.class_theta, block.flat);
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

absl::StatusOr<ModelLayers> SelectLayer(const ModelSource& source, const Limits& limits) {
  POSENC_ASSIGN_OR_RETURN(std::vector<ModelLayers> all, ReadModel(source, limits));
  std::string choices;
  for (const ModelLayers& layers : all) {
    choices += fmt::format("{}\"{}\"", choices.empty() ? "" : ", ", Quote(layers.layer_type));
  }
  if (const auto* index = std::get_if<uint32_t>(&source.layer)) {
    for (ModelLayers& layers : all) {
      if (std::find(layers.layer_index.begin(), layers.layer_index.end(), *index) != layers.layer_index.end()) {
        return std::move(layers);
      }
    }
    return InvalidArgument("OUT_OF_RANGE", "layer_index", fmt::format("{}", *index), "the file has no such layer");
  }
  if (const auto* type = std::get_if<std::string>(&source.layer)) {
    if (all.size() == 1 && all[0].layer_type.empty()) return std::move(all[0]);  // the same for every type
    for (ModelLayers& layers : all) {
      if (layers.layer_type == *type) return std::move(layers);
    }
    return InvalidArgument("UNKNOWN_VALUE", "layer_type", *type, fmt::format("must be one of {}", choices));
  }
  if (all.size() == 1) return std::move(all[0]);
  return InvalidArgument("MISSING", "layer_type", "",
                         fmt::format("this model's layers differ: choose one of {}, or a layer_index", choices));
}

}  // namespace posenc
