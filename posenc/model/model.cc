#include "posenc/model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>

#include "posenc/model/component.h"
#include "posenc/model/config_json.h"
#include "posenc/model/diffusers.h"
#include "posenc/model/model_types.h"
#include "posenc/model/part.h"
#include "posenc/model/part_alibi.h"
#include "posenc/model/part_axial.h"
#include "posenc/model/part_learned.h"
#include "posenc/model/part_rotary.h"
#include "posenc/model/part_t5.h"
#include "posenc/model/part_terms.h"
#include "posenc/model/part_window.h"
#include "posenc/model/rope_block.h"
#include "posenc/status.h"

namespace posenc {
namespace {

constexpr int64_t kMaxLayers = 100000;
constexpr size_t kMaxLayerTypes = 16;  // each is read, listed and explained; models have up to three

absl::StatusOr<Part> OpenPart(const ModelSource& source, const nlohmann::json& file) {
  POSENC_ASSIGN_OR_RETURN(Component component, SelectComponent(file, source.component, source.wanted));
  Part part{component.config, {}, component.type != nullptr, component.name, {}};
  if (part.known) {
    part.type = *component.type;
  } else {
    if (!source.input_pairing) {
      return InvalidArgument(
          "MISSING", "input_pairing", "",
          fmt::format("model_type \"{}\" is not known: say PAIRING_INTERLEAVED or PAIRING_HALF_SPLIT, "
                      "and the file is read by the general rules",
                      Quote(component.model_type)));
    }
    part.type.partial = 1;
    part.Say("UNKNOWN_MODEL_TYPE", part.config.Path("model_type"),
             fmt::format("\"{}\" is not known: read by the general rules, with the pairing of the request",
                         Quote(component.model_type)));
  }
  if (!component.nested) part.type.width = {};  // whole files say it, and are not guessed at
  if (!part.type.leaves) part.type.leaves = part.type.pairing;
  if (part.type.reads_interleave) {
    POSENC_ASSIGN_OR_RETURN(const auto interleave, part.config.Bool("rope_interleave"));
    if (!interleave.value_or(true)) part.type.pairing = Pairing::kHalfSplit;
  }
  if (source.input_pairing) {
    if (part.known && *source.input_pairing != part.type.pairing) {
      part.Say("PAIRING_OVERRIDDEN", "input_pairing", "differs from the model class's own, as the request says");
    }
    part.type.pairing = *source.input_pairing;
    part.type.leaves = *source.input_pairing;
  }
  if (source.output_pairing) part.type.leaves = *source.output_pairing;
  return part;
}

// INVALID_ARGUMENT unless the field that switches the rotary embedding on does.
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
      fmt::format("model_type \"{}\" has a rotary embedding only where this is {}", part.type.name, wanted.value));
}

constexpr std::string_view kRope = "rope", kNoRope = "no_rope";

// Layers of other kinds, which no class rotates.
bool HasAttention(std::string_view layer_type) {
  for (std::string_view other : {"linear_attention", "conv", "mamba", "recurrent", "moe", "mlp"}) {
    if (layer_type == other) return false;
  }
  return true;
}

// kNoRopeList: whatever layer_types says of the layers' windows.
absl::StatusOr<std::vector<std::string>> FromNoRopeList(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(auto rope, part.config.Numbers("no_rope_layers"));
  if (rope && rope->empty()) rope.reset();
  if (rope && static_cast<int64_t>(rope->size()) != layers) {
    return InvalidArgument("MISMATCH", part.config.Path("no_rope_layers"), fmt::format("{} entries", rope->size()),
                           fmt::format("must be one a layer: {}", layers));
  }
  POSENC_ASSIGN_OR_RETURN(const auto interval, part.config.Integer({"no_rope_layer_interval"}));
  const int64_t every = std::max<int64_t>(interval.value_or(4), 1);
  std::vector<std::string> types;
  for (int64_t n = 0; n < layers; ++n) {
    types.emplace_back((rope ? (*rope)[n] != 0 : (n + 1) % every != 0) ? kRope : kNoRope);
  }
  return types;
}

// The type of a layer whose theta is its own, and the theta of such a type.
constexpr std::string_view kThetaPrefix = "rope_theta ";
double ThetaOf(std::string_view type) {
  double theta = 0;
  type.remove_prefix(kThetaPrefix.size());
  std::from_chars(type.data(), type.data() + type.size(), theta);
  return theta;
}
std::string ThetaName(double theta) {
  return theta == 0 ? std::string(kNoRope) : fmt::format("{}{}", kThetaPrefix, theta);
}

// kThetaList: layers of equal theta are of one type.
absl::StatusOr<std::vector<std::string>> FromThetaList(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(const auto thetas, part.config.Numbers("layer_rope_theta"));
  if (!thetas || static_cast<int64_t>(thetas->size()) != layers) {
    return InvalidArgument("MISMATCH", part.config.Path("layer_rope_theta"),
                           thetas ? fmt::format("{} entries", thetas->size()) : "absent",
                           fmt::format("must be one a layer: {}", layers));
  }
  std::vector<std::string> types;
  for (double theta : *thetas) types.push_back(ThetaName(theta));
  return types;
}

// The type of each layer; empty where all are the same or their number is not known.
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
    if (listed) return *std::move(listed);
  }
  std::vector<std::string> types;
  const LayerPattern& pattern = part.type.pattern;
  if (pattern.every == 0) return types;
  std::optional<int64_t> given;
  if (!pattern.field.empty()) {
    POSENC_ASSIGN_OR_RETURN(given, part.config.Integer({pattern.field, "_sliding_window_pattern"}));
  }
  const int64_t every = std::max<int64_t>(given.value_or(pattern.every), 1);
  for (int64_t n = 0; n < layers; ++n) {
    const bool full = (n + 1) % every == 0 || (pattern.last && n == layers - 1);
    types.emplace_back(full ? std::string_view("full_attention") : pattern.others);
  }
  return types;
}

// Whether the class leaves these layers without rotary embedding.
bool LeavesOut(const Part& part, std::string_view layer_type) {
  switch (part.type.layers) {
    case Layers::kSlidingOnly: return layer_type == "full_attention";
    case Layers::kSlidingOnlyIfWindow:
      return layer_type == "full_attention" &&
             !(part.config.tree().contains("sliding_window") && part.config.Find("sliding_window") == nullptr);
    case Layers::kNoRopeList:
    case Layers::kThetaList: return layer_type == kNoRope;
    default: return !HasAttention(layer_type);
  }
}

// The block that holds for a layer type. nullopt: no rope.
struct LayerBlock {
  std::optional<RopeBlock> block;
  double class_theta;
  std::string_view theta_field;  // outside the block
  bool flat;
};

const LayerDefaults* DefaultsOf(const ModelType& type, std::string_view layer_type) {
  for (const LayerDefaults& defaults : type.by_layer) {
    if (defaults.layer_type == layer_type) return &defaults;
  }
  return nullptr;
}

RopeBlock ClassBlock(const LayerDefaults& defaults) {
  RopeBlock block;
  block.parameters.rope_type = std::string(defaults.rope_type);
  block.parameters.partial_rotary_factor = defaults.partial;
  return block;
}

// kByType, kByTypeFilled.
absl::StatusOr<LayerBlock> BlockByType(Part& part, const RopeBlocks& blocks, const std::string& layer_type) {
  const LayerDefaults* own = DefaultsOf(part.type, layer_type);
  const bool fills = part.type.layers == Layers::kByTypeFilled && own != nullptr;
  const bool nested = !blocks.empty() && !blocks[0].first.empty();
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
                           fmt::format("model_type \"{}\" wants a block a layer type", part.type.name));
  }
  if (!blocks.empty() && part.config.Find("rope_scaling") == nullptr) {
    // These classes look for blocks by layer type in rope_parameters, and for one block in rope_scaling only.
    part.Say("NOT_USED", "rope_parameters",
             fmt::format("model_type \"{}\" reads blocks by layer type there, and this is "
                         "one for all: default blocks are taken",
                         part.type.name));
  }
  if (own != nullptr) result.block = ClassBlock(*own);
  result.flat = true;
  return result;
}

absl::StatusOr<LayerBlock> BlockFor(Part& part, const RopeBlocks& blocks, const std::string& layer_type) {
  const bool nested = !blocks.empty() && !blocks[0].first.empty();
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
             fmt::format("absent: the block of model_type \"{}\" itself is taken", part.type.name));
  }
  return result;
}

// A head width of these layers' own.
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

absl::StatusOr<std::vector<ModelLayers>> ReadDiffusers(const ModelSource& source, const ConfigObject& config) {
  if (!source.component.empty()) {
    return InvalidArgument("UNKNOWN_VALUE", "component", source.component,
                           "a diffusers file has no parts: leave it out");
  }
  POSENC_ASSIGN_OR_RETURN(ModelLayers layers, ReadDiffusersModel(config));
  RotarySettings& settings = *layers.rotary;
  if (source.input_pairing) settings.input_pairing = settings.output_pairing = source.input_pairing;
  if (source.output_pairing) settings.output_pairing = source.output_pairing;
  return std::vector<ModelLayers>{std::move(layers)};
}

// What a term or a learned table is asked for, or, by kAny, what the part has that is neither rotary embedding nor
// bias.
absl::StatusOr<Wanted> WantedOf(const ModelSource& source, const Part& part) {
  if (source.wanted != Wanted::kAny) return source.wanted;
  const absl::Status terms = CheckTerms(part);
  if (terms.ok()) return Wanted::kTerms;
  if (DetailsOf(terms).reason != "UNSUPPORTED") return terms;
  return part.type.learned ? Wanted::kLearned : Wanted::kRotaryOrBias;
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
  if (file.contains(kClassName) && !file.contains("model_type")) {
    if (source.wanted == Wanted::kTerms || source.wanted == Wanted::kLearned) {
      return InvalidArgument("UNSUPPORTED", kClassName, "", "diffusers' classes have rotary embeddings");
    }
    return ReadDiffusers(source, ConfigObject("", file));
  }
  POSENC_ASSIGN_OR_RETURN(Part part, OpenPart(source, file));
  POSENC_ASSIGN_OR_RETURN(const Wanted wanted, WantedOf(source, part));
  if (wanted == Wanted::kLearned) {  // of no layer
    ModelLayers input;
    input.precision = part.type.precision;
    POSENC_ASSIGN_OR_RETURN(input.table, LearnedOf(part));
    input.notes = std::move(part.notes);
    return std::vector<ModelLayers>{std::move(input)};
  }
  POSENC_ASSIGN_OR_RETURN(const auto counted,
                          part.config.Integer({"num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"}));
  const int64_t layers = counted.value_or(0);
  if (layers > kMaxLayers) {
    return InvalidArgument("OUT_OF_RANGE", part.config.Path("num_hidden_layers"), fmt::format("{}", layers),
                           fmt::format("must be at most {}", kMaxLayers));
  }

  ModelLayers common;
  common.precision = part.type.precision;
  for (int64_t n = 0; n < layers; ++n) common.layer_index.push_back(static_cast<uint32_t>(n));
  if (wanted == Wanted::kTerms) {
    POSENC_RETURN_IF_ERROR(CheckTerms(part));
    POSENC_ASSIGN_OR_RETURN(common.terms, TermsOf(part));
    common.notes = std::move(part.notes);
    return std::vector<ModelLayers>{std::move(common)};
  }
  if (part.type.scheme == Scheme::kSwinV2) return SwinV2Of(part, common);
  POSENC_ASSIGN_OR_RETURN(const bool has_alibi, HasAlibi(part));
  const Scheme scheme = part.type.scheme;
  const bool is_window = scheme == Scheme::kSwin || scheme == Scheme::kBeit;
  if (has_alibi || is_window || scheme == Scheme::kT5 || scheme == Scheme::kAxial) {
    if (has_alibi) {
      POSENC_ASSIGN_OR_RETURN(common.bias, AlibiOf(part));
    } else if (scheme == Scheme::kT5) {
      POSENC_ASSIGN_OR_RETURN(common.bias, T5Of(part));
    } else if (scheme == Scheme::kSwin) {
      POSENC_ASSIGN_OR_RETURN(common.bias, SwinOf(part));
    } else if (scheme == Scheme::kBeit) {
      POSENC_ASSIGN_OR_RETURN(common.bias, BeitOf(part));
    } else {
      POSENC_ASSIGN_OR_RETURN(common.rotary, AxialOf(part));
    }
    common.notes = std::move(part.notes);
    return std::vector<ModelLayers>{std::move(common)};
  }
  POSENC_RETURN_IF_ERROR(CheckHasRotary(part));
  if (!part.known && !MentionsRope(part)) {
    return InvalidArgument("UNSUPPORTED", part.config.Path("model_type"), "",
                           "is not known, and the file holds no rope_theta, rope_scaling or rope_parameters");
  }

  POSENC_ASSIGN_OR_RETURN(const RopeBlocks blocks, ReadRopeBlocks(part.config, part.type));
  POSENC_ASSIGN_OR_RETURN(std::vector<std::string> types, LayerTypes(part, layers));
  // In the order of their first layers.
  std::vector<std::string> distinct;
  for (const std::string& type : types) {
    if (std::find(distinct.begin(), distinct.end(), type) == distinct.end()) distinct.push_back(type);
    if (distinct.size() > kMaxLayerTypes) break;
  }
  const bool too_many_listed = distinct.size() > kMaxLayerTypes;
  const bool nested = !blocks.empty() && !blocks[0].first.empty();
  // DeepSeek-V4's blocks are not by the types that layer_types lists.
  const auto is_label = [&](const std::string& type) {
    if (!nested) return DefaultsOf(part.type, type) != nullptr;
    return std::any_of(blocks.begin(), blocks.end(), [&type](const auto& block) { return block.first == type; });
  };
  if ((nested || !part.type.by_layer.empty()) && !too_many_listed &&
      std::none_of(types.begin(), types.end(), is_label)) {
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
                           "more types", fmt::format("at most {} different types of layer", kMaxLayerTypes));
  }
  std::vector<ModelLayers> result;
  for (const std::string& layer_type : distinct) {
    Part own = part;  // notes are by layer type
    ModelLayers entry = common;
    entry.layer_type = layer_type;
    entry.scales_softmax = part.type.mla;
    if (differ && !types.empty()) {
      entry.layer_index.clear();
      for (size_t n = 0; n < types.size(); ++n) {
        if (types[n] == layer_type) entry.layer_index.push_back(static_cast<uint32_t>(n));
      }
    }
    POSENC_ASSIGN_OR_RETURN(LayerBlock block, BlockFor(own, blocks, layer_type));
    if (block.block) {
      if (part.type.layers == Layers::kThetaList && layer_type.starts_with(kThetaPrefix)) {
        block.block->parameters.rope_theta = ThetaOf(layer_type);
      }
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
