#include "posenc/model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "posenc/methods/methods.h"
#include "posenc/model/config_json.h"
#include "posenc/model/model_types.h"
#include "posenc/model/rope_block.h"
#include "posenc/status.h"

namespace posenc {
namespace {

constexpr int64_t kMaxLayers = 100000;
constexpr size_t kMaxLayerTypes = 16;  // each is read, listed and explained; models have up to three

// Everything that reading one part of a file needs.
struct Part {
  ConfigObject config;
  ModelType type;        // of an unknown model_type: Llama-like, with the caller's pairing
  bool known;
  std::vector<Note> notes;

  void Say(std::string code, std::string field, std::string message) {
    notes.push_back({std::move(code), std::move(field), std::move(message)});
  }
};

absl::StatusOr<ConfigObject> SelectComponent(const nlohmann::json& file, const std::string& component) {
  const ConfigObject whole("", file);
  POSENC_ASSIGN_OR_RETURN(const auto text, whole.Object("text_config"));
  if (!component.empty() && component != "text") {
    return InvalidArgument("UNKNOWN_VALUE", "component", component,
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
      return InvalidArgument("MISSING", "input_pairing", "",
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
  if (source.input_pairing) {
    if (known != nullptr && *source.input_pairing != known->input_pairing) {
      part.Say("PAIRING_OVERRIDDEN", "input_pairing", "differs from the model class's own, as the request says");
    }
    part.type.input_pairing = part.type.output_pairing = *source.input_pairing;
  }
  if (source.output_pairing) part.type.output_pairing = *source.output_pairing;
  return part;
}

absl::StatusOr<int64_t> HeadDim(const Part& part) {
  const ConfigObject& config = part.config;
  absl::StatusOr<std::optional<int64_t>> width;
  switch (part.type.head_width) {
    case HeadWidth::kHeadDim: width = config.Integer({"head_dim"}); break;
    case HeadWidth::kQkRopeHeadDim: width = config.Integer({"qk_rope_head_dim"}); break;
    case HeadWidth::kRotaryDim: width = config.Integer({"rotary_dim"}); break;
  }
  POSENC_RETURN_IF_ERROR(width.status());
  if (*width) return **width;
  if (part.type.head_dim != 0) return part.type.head_dim;
  POSENC_ASSIGN_OR_RETURN(const auto hidden, config.Integer({"hidden_size", "n_embd", "d_model"}));
  POSENC_ASSIGN_OR_RETURN(const auto heads, config.Integer({"num_attention_heads", "n_head", "n_heads"}));
  if (!hidden || !heads || *heads == 0) {
    return InvalidArgument("MISSING", config.Path("head_dim"), "",
                           "the file must hold head_dim, or hidden_size and num_attention_heads above 0");
  }
  return *hidden / *heads;
}

// Where a value stands both in the block and outside, transformers takes one of them without a word: we say so.
void NoteUnused(Part& part, std::string_view name, const std::optional<double>& used,
                const std::optional<double>& unused, std::string_view where) {
  if (!used || !unused || *used == *unused) return;
  part.Say("NOT_USED", std::string(name), fmt::format("{} {} is not used: {} counts", where, *unused, *used));
}

// transformers' standardize_rope_params: fields outside the block move into it. `flat`: one block for all layers.
absl::Status Standardize(Part& part, RopeBlock& block, double class_theta, bool flat) {
  const ConfigObject& config = part.config;
  RopeParameters& p = block.parameters;
  if (part.type.model_type == "phi3" && (p.rope_type == "su" || p.rope_type == "yarn")) {
    part.Say("RENAMED", "rope_type", fmt::format("Phi-3 reads \"{}\" as \"longrope\"", p.rope_type));
    p.rope_type = "longrope";
  }

  if (part.type.model_type == "hunyuan_v1_dense" && p.rope_type == "dynamic" && p.alpha.value_or(0) != 0) {
    part.Say("RENAMED", "rope_type", "Hunyuan reads \"dynamic\" with an alpha as \"ntk_alpha\": its other fields do not count");
    const RopeParameters written = std::move(p);
    p = {.rope_type = "ntk_alpha", .rope_theta = written.rope_theta};
    p.alpha = written.alpha;
  }

  POSENC_ASSIGN_OR_RETURN(const auto outer_theta, config.Number({"rope_theta", "rotary_emb_base"}));
  NoteUnused(part, "rope_theta", p.rope_theta, outer_theta, "the value outside the block");
  if (!p.rope_theta) p.rope_theta = outer_theta.value_or(class_theta);

  POSENC_ASSIGN_OR_RETURN(const auto outer_partial, config.Number({"partial_rotary_factor", "rotary_pct"}));
  NoteUnused(part, "partial_rotary_factor", p.partial_rotary_factor, outer_partial, "the value outside the block");
  if (!p.partial_rotary_factor) p.partial_rotary_factor = outer_partial.value_or(part.type.partial_rotary_factor);

  if (p.rope_type == "llama3" || p.rope_type == "yarn" || p.rope_type == "longrope") {
    POSENC_ASSIGN_OR_RETURN(const auto outer, config.Number({"original_max_position_embeddings"}));
    if (flat && outer) {
      NoteUnused(part, "original_max_position_embeddings", outer, p.original_max_position_embeddings,
                 "the block's value");
      p.original_max_position_embeddings = outer;
    }
    if (!p.original_max_position_embeddings) {
      POSENC_ASSIGN_OR_RETURN(const auto longest, config.Number({"max_position_embeddings"}));
      p.original_max_position_embeddings = longest;
      part.Say("DEFAULTED", "original_max_position_embeddings", "absent: max_position_embeddings is taken");
    }
  }
  if (p.rope_type == "yarn") {
    if (!block.has_factor) {
      return InvalidArgument("MISSING", "factor", "", "required by rope_type \"yarn\" (null: from the lengths)");
    }
    if (!flat && p.truncate) {
      part.Say("NOT_USED", "truncate", "a layer type's block is not searched for it: true counts");
      p.truncate.reset();
    }
    for (auto& [name, field] : {std::pair{"beta_fast", &p.beta_fast}, {"beta_slow", &p.beta_slow}}) {
      if (*field == 0.0) {
        part.Say("DEFAULTED", name, "0 means the default");
        field->reset();
      }
    }
  }
  return absl::OkStatus();
}

// The settings of layers with this block.
absl::StatusOr<RotarySettings> Settings(Part& part, RopeBlock block, double class_theta, bool flat) {
  POSENC_RETURN_IF_ERROR(Standardize(part, block, class_theta, flat));
  if (block.has_other_field) {
    part.Say("NOT_PART_OF_ROTATION", std::string(part.type.query_scale_field),
             "the model also multiplies its queries by 1 + this * ln(1 + floor(position / "
             "original_max_position_embeddings)); the answer does not");
  }
  RopeParameters& p = block.parameters;
  RotarySettings settings;
  POSENC_ASSIGN_OR_RETURN(settings.head_dim, HeadDim(part));
  if (part.type.partial == Partial::kIgnored && p.partial_rotary_factor.value_or(1) != 1) {
    if (p.rope_type != "default") {
      return InvalidArgument("UNSUPPORTED", "partial_rotary_factor", fmt::format("{}", *p.partial_rotary_factor),
                             fmt::format("model_type \"{}\" computes narrow tables for rope_type \"{}\" and fails to "
                                         "apply them",
                                         part.type.model_type, Quote(p.rope_type)));
    }
    part.Say("NOT_USED", "partial_rotary_factor",
              fmt::format("model_type \"{}\" does not read it for rope_type \"default\"", part.type.model_type));
    p.partial_rotary_factor.reset();
  }
  const RopeMethod* method = FindRopeMethod(p.rope_type);
  const auto reads = [method](std::string_view name) {
    return method != nullptr && std::find(method->reads.begin(), method->reads.end(), name) != method->reads.end();
  };
  if (reads("max_position_embeddings")) {
    POSENC_ASSIGN_OR_RETURN(settings.max_position_embeddings,
                            part.config.Number({"max_position_embeddings", "n_positions"}));
  }
  settings.frequencies = std::move(p);
  settings.input_pairing = part.type.input_pairing;
  settings.output_pairing = part.type.output_pairing;
  return settings;
}

absl::StatusOr<AlibiSettings> Alibi(Part& part) {
  const ConfigObject& config = part.config;
  AlibiSettings alibi;
  POSENC_ASSIGN_OR_RETURN(const auto heads, config.Integer({"num_attention_heads", "n_head", "n_heads"}));
  if (!heads) {
    return InvalidArgument("MISSING", config.Path("num_attention_heads"), "", "the file must hold the number of heads");
  }
  alibi.num_heads = *heads;
  alibi.form = part.type.alibi == ModelAlibi::kMpt ? AlibiForm::kMpt : AlibiForm::kBloom;
  alibi.slopes = part.type.alibi == ModelAlibi::kMpt ? AlibiSlopeRule::kMpt : AlibiSlopeRule::kPowerOfTwo;
  if (part.type.alibi == ModelAlibi::kMpt) {
    POSENC_ASSIGN_OR_RETURN(const auto attention, config.Object("attn_config"));
    if (attention) {
      POSENC_ASSIGN_OR_RETURN(alibi.alibi_bias_max, attention->Number({"alibi_bias_max"}));
    }
  }
  if (part.type.alibi == ModelAlibi::kFalcon) {
    alibi.bias_dtype = DType::kBF16;
    part.Say("ADDED_BEFORE_SCALING", "alibi",
              "Falcon's bias is bfloat16 and is added to q.k before the scaling by 1/sqrt(head_dim)");
  }
  return alibi;
}

// Whether the file's bias is ALiBi.
absl::StatusOr<bool> HasAlibi(const Part& part) {
  switch (part.type.alibi) {
    case ModelAlibi::kNone: return false;
    case ModelAlibi::kBloom: return true;
    case ModelAlibi::kFalcon: {
      POSENC_ASSIGN_OR_RETURN(const auto alibi, part.config.Bool("alibi"));
      return alibi.value_or(false);
    }
    case ModelAlibi::kMpt: {
      POSENC_ASSIGN_OR_RETURN(const auto attention, part.config.Object("attn_config"));
      std::optional<bool> alibi;
      if (attention) {
        POSENC_ASSIGN_OR_RETURN(alibi, attention->Bool("alibi"));
      }
      if (alibi.value_or(true)) return true;
      return InvalidArgument("UNSUPPORTED", "attn_config.alibi", "false",
                             "without ALiBi, MPT's positions are a learned table");
    }
  }
  __builtin_unreachable();
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

absl::StatusOr<LayerBlock> BlockFor(const Part& part, const RopeBlocks& blocks, const std::string& layer_type) {
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
  } else if (!blocks.empty() && !local) {
    result.block = blocks[0].second;
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
  if (has_alibi) {
    POSENC_ASSIGN_OR_RETURN(common.alibi, Alibi(part));
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
      auto settings = Settings(own, *std::move(block.block), block.class_theta, block.flat);
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
