#include "posenc/model/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/model/layers.h"
#include "posenc/model/rope_block.h"

namespace posenc {
namespace {

// Returns INVALID_ARGUMENT (UNSUPPORTED) if the file does not switch the rotary embedding on.
absl::Status CheckHasRotary(const Part& part) {
  const Condition& wanted = part.type.only_if;
  if (wanted.field.empty()) return absl::OkStatus();
  std::string value(wanted.if_absent ? wanted.value : kAbsent);
  if (const nlohmann::json* field = part.config.Find(wanted.field)) {
    value = field->is_string() ? field->get<std::string>() : AsText(*field);
  } else if (part.config.tree().contains(std::string(wanted.field))) {
    value = "null";
  }
  if (value == wanted.value) return absl::OkStatus();
  return InvalidArgument(
      value == kAbsent ? "MISSING" : "UNSUPPORTED", part.config.Path(wanted.field), value,
      fmt::format("must be {}: else model_type \"{}\" has no rotary embedding", wanted.value, part.type.name));
}

// A file of unknown model_type without any of these fields has no known positional encoding.
bool MentionsRope(const Part& part) {
  for (std::string_view name :
       {"rope_theta", "rope_scaling", "rope_parameters", "rotary_dim", "rotary_pct", "qk_rope_head_dim"}) {
    if (part.config.Has(name)) return true;
  }
  return false;
}

// Reads one field of the head of layers that per_layer_config describes one by one. CONFLICT if it differs between
// them.
absl::Status ReadPerLayer(Part& part, const ConfigObject& per_layer, std::string_view field,
                          const std::vector<uint32_t>& layers, std::optional<int64_t>& value) {
  std::string first_path;
  for (uint32_t layer : layers) {
    POSENC_ASSIGN_OR_RETURN(const auto own, per_layer.Object(std::to_string(layer)));
    if (!own) continue;
    POSENC_ASSIGN_OR_RETURN(const auto given, own->Integer({field}));
    if (!given) continue;
    if (!first_path.empty() && *given != *value) {
      return Against(first_path, InvalidArgument("CONFLICT", own->Path(field), fmt::format("{}", *given),
                                                 fmt::format("must be {}, as in another layer of this type", *value)));
    }
    if (first_path.empty()) first_path = own->Path(field);
    value = *given;
    part.Comes("head_dim", own->Path(field));
  }
  return absl::OkStatus();
}

// Sets part.layer_head_dim and part.layer_unrotated_dim if these layers have their own head.
absl::Status ReadHeadDim(Part& part, const std::string& layer_type, const std::vector<uint32_t>& layers) {
  if (const LayerDefaults* own = DefaultsOf(part.type, layer_type); own != nullptr && own->head_dim != 0) {
    POSENC_ASSIGN_OR_RETURN(const auto given, part.config.Integer({own->head_dim_field}));
    part.layer_head_dim = given.value_or(own->head_dim);
    part.Comes("head_dim", part.config.Path(own->head_dim_field));
  }
  POSENC_ASSIGN_OR_RETURN(const auto per_layer, part.config.Object("per_layer_config"));
  if (!per_layer) return absl::OkStatus();
  const std::string_view field = part.type.unrotated_dim ? "qk_rope_head_dim" : "head_dim";
  POSENC_RETURN_IF_ERROR(ReadPerLayer(part, *per_layer, field, layers, part.layer_head_dim));
  if (!part.type.unrotated_dim) return absl::OkStatus();
  return ReadPerLayer(part, *per_layer, "qk_nope_head_dim", layers, part.layer_unrotated_dim);
}

// The window of layers of this type; nullopt without one.
std::optional<double> WindowOf(const Part& part, const std::string& layer_type) {
  if (!layer_type.empty() && layer_type != "sliding_attention") return std::nullopt;
  const nlohmann::json* used = part.config.Find("use_sliding_window");
  const nlohmann::json* window = part.config.Find("sliding_window");
  if (used != nullptr && used->is_boolean() && !used->get<bool>()) return std::nullopt;
  if (window == nullptr || !window->is_number() || !(window->get<double>() >= 1)) return std::nullopt;
  return window->get<double>();
}

// Distinct layer types, and the type of each layer. of_layer is empty if unknown or if the only type is ""; `given` has
// the types that the file or the class gives, even if they do not matter.
struct Types {
  LayerTypeNames distinct;
  LayerTypeNames of_layer;
  LayerTypeNames given;
};

// The names that transformers allows, its older names for them, and those of the class's and the file's blocks.
bool IsLayerType(const Part& part, const RopeBlocks& blocks, const std::string& layer_type) {
  for (std::string_view known : {"full_attention",
                                 "sliding_attention",
                                 "chunked_attention",
                                 "window_attention",
                                 "indexed_attention",
                                 "compressed_sparse_attention",
                                 "heavily_compressed_attention",
                                 "minimax_m3_sparse",
                                 "conv",
                                 "moe",
                                 "hybrid",
                                 "hybrid_sliding",
                                 "reference_sliding_attention",
                                 "linear_attention",
                                 "mamba",
                                 "attention",
                                 "recurrent",
                                 "mlp",
                                 "deepseek_sparse_attention",
                                 "qwen_sparse_attention",
                                 "sparse",
                                 "dense"}) {
    if (layer_type == known) return true;
  }
  if (DefaultsOf(part.type, layer_type) != nullptr) return true;
  return std::any_of(blocks.begin(), blocks.end(), [&](const auto& block) { return block.first == layer_type; });
}

// Returns UNKNOWN_VALUE for a listed type that transformers does not know.
absl::Status CheckListed(const Part& part, const RopeBlocks& blocks) {
  const std::string path = part.config.PathOf({"layer_types", "layers_block_type"});
  POSENC_ASSIGN_OR_RETURN(const auto listed, ListedTypes(part));
  if (!part.known || !listed) return absl::OkStatus();
  const LayerTypeNames& types = *listed;
  const auto& only = part.type.pattern.only;
  for (size_t n = 0; n < types.size(); ++n) {
    const bool accepted = only[0].empty() || std::find(only.begin(), only.end(), types[n]) != only.end();
    if (accepted && IsLayerType(part, blocks, types[n])) continue;
    if (!accepted) {
      return InvalidArgument("UNKNOWN_VALUE", fmt::format("{}[{}]", path, n), types[n],
                             fmt::format("must be {}, {} or {}: model_type \"{}\" refuses others", only[0], only[1],
                                         only[2], part.type.name));
    }
    return InvalidArgument("UNKNOWN_VALUE", fmt::format("{}[{}]", path, n), types[n],
                           "must be a layer type of transformers, such as full_attention or sliding_attention");
  }
  return absl::OkStatus();
}

// Adds a note if the file or its class lists types of another number of layers than it has.
void NoteNumber(Part& part, size_t layers, const LayerTypeNames& types) {
  size_t listed = 0;
  for (std::string_view field : {"layers_block_type", "layer_types"}) {
    const nlohmann::json* list = part.config.Find(field);
    if (list != nullptr && list->is_array()) listed = list->size();
  }
  if (listed != 0 && layers == 0 && part.known) {
    part.Say("DEFAULTED", "num_hidden_layers",
             "absent: transformers takes the class's number, and refuses a list of types of another length");
  }
  if (listed == 0 || !part.type.pattern.ignores_list) listed = types.size();
  if (listed == 0 || layers == 0 || listed == layers) return;
  part.Say(
      "LAYERS_DISAGREE", part.config.PathOf({"layer_types", "layers_block_type"}),
      fmt::format("has {} entries, and {} is {}; transformers refuses such a file", listed,
                  part.config.PathOf({"num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"}), layers));
}

// Adds a note if transformers refuses the file for lack of one kind of layers.
void NoteNeeded(Part& part, const LayerTypeNames& types) {
  const LayerPattern& pattern = part.type.pattern;
  const bool by_attention = !HasAttention(pattern.others);
  const auto is_full = [&](const std::string& type) {
    return by_attention ? HasAttention(type) : type == pattern.full;
  };
  const bool lacks_full = pattern.needs_full && std::none_of(types.begin(), types.end(), is_full);
  const bool lacks_others = pattern.needs_others && std::all_of(types.begin(), types.end(), is_full);
  if (types.empty() || !(lacks_full || lacks_others)) return;
  part.Say(
      "LAYERS_DISAGREE", part.config.PathOf({"layer_types", "layers_block_type"}),
      fmt::format("has no {} layer; transformers refuses such a file", lacks_full ? pattern.full : pattern.others));
}

absl::StatusOr<Types> TypesOf(const Part& part, const RopeBlocks& blocks, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(LayerTypeNames types, LayerTypes(part, layers));
  POSENC_RETURN_IF_ERROR(CheckListed(part, blocks));
  // Ordered by first occurrence.
  LayerTypeNames distinct;
  for (const std::string& type : types) {
    if (std::find(distinct.begin(), distinct.end(), type) == distinct.end()) distinct.push_back(type);
    if (distinct.size() > kMaxLayerTypes) break;
  }
  const bool too_many_listed = distinct.size() > kMaxLayerTypes;
  const bool nested = IsByLayerType(blocks);
  // An unknown model's layer_types are ignored if none of them is the label of a block.
  const auto is_label = [&](const std::string& type) {
    if (!nested) return DefaultsOf(part.type, type) != nullptr;
    return std::any_of(blocks.begin(), blocks.end(), [&type](const auto& block) { return block.first == type; });
  };
  if (!part.known && (nested || !part.type.by_layer.empty()) && !too_many_listed &&
      std::none_of(distinct.begin(), distinct.end(), is_label)) {
    types.clear();
  }
  // If the file does not give the number of layers, the class's pattern still tells the types.
  const LayerPattern& pattern = part.type.pattern;
  const bool of_pattern = types.empty() && pattern.every != 0 && part.type.layers == Layers::kUniform &&
                          !(HasAttention(pattern.full) && HasAttention(pattern.others));
  if (of_pattern) return Types{{std::string(pattern.full), std::string(pattern.others)}, {}, {}};
  const bool some_lack_attention = std::any_of(types.begin(), types.end(), std::not_fn(HasAttention));
  const ClassRules& rules = part.type.rules;
  const bool by_rule = !rules.all_layer_types.empty() || (!types.empty() && rules.layer_block != nullptr);
  const bool differ = nested || some_lack_attention || by_rule || part.type.layers != Layers::kUniform;
  if (!differ && !too_many_listed) {
    distinct = {""};
  } else if (types.empty() && !rules.all_layer_types.empty()) {
    distinct.assign(rules.all_layer_types.begin(), rules.all_layer_types.end());
  } else if (types.empty() && nested) {
    distinct.clear();
    for (const auto& [layer_type, block] : blocks) distinct.push_back(layer_type);
  } else if (types.empty() && !part.type.by_layer.empty()) {
    distinct.clear();
    for (const LayerDefaults& own : part.type.by_layer) distinct.emplace_back(own.layer_type);
    if (pattern.every > 1 && DefaultsOf(part.type, pattern.full) == nullptr) distinct.emplace_back(pattern.full);
  } else if (types.empty()) {
    distinct = {"sliding_attention", "full_attention"};
  }

  if (distinct.size() > kMaxLayerTypes) {
    return InvalidArgument("OUT_OF_RANGE", part.config.PathOf({"layer_types", "layers_block_type"}),
                           fmt::format("{} or more layer types", distinct.size()),
                           fmt::format("must name at most {} different layer types", kMaxLayerTypes));
  }
  LayerTypeNames of_layer = differ ? types : LayerTypeNames();
  return Types{std::move(distinct), std::move(of_layer), std::move(types)};
}

// Notes what the file says about positions and the class does not read.
void NoteIgnored(Part& part, bool ignores_block) {
  if (ignores_block) {
    part.Say("NOT_USED", part.config.PathOf({"rope_parameters", "rope_scaling"}),
             fmt::format("model_type \"{}\" does not read it", part.type.name));
  }
  if (part.type.block_in == BlockIn::kRopeParameters) {
    if (part.config.Find("rope_scaling") != nullptr) {
      part.Say("NOT_USED", "rope_scaling",
               fmt::format("model_type \"{}\" reads its scaling from rope_parameters only", part.type.name));
    }
    const auto block = part.config.tree().find("rope_parameters");
    if (block != part.config.tree().end() && (block->is_null() || block->empty())) {
      part.Say("DEFAULTED", "rope_parameters", "null or empty: read as if it were absent; transformers fails");
    }
  }
  if (part.config.Find("attn_temperature_len") != nullptr) {
    part.Say("NOT_PART_OF_ROTATION", "attn_temperature_len",
             "Grok 2 also multiplies its scores by ln(position) / ln(this) beyond this position; the answer does not");
  }
  const nlohmann::json* alibi = part.type.scheme == Scheme::kFalcon ? nullptr : part.config.Find("alibi");
  if (alibi != nullptr && alibi->is_boolean() && alibi->get<bool>()) {
    part.Say("NOT_USED", "alibi",
             part.known ? fmt::format("model_type \"{}\" has no ALiBi: its layers rotate", part.type.name)
                        : "the general rules know no ALiBi: the layers rotate");
  }
}

}  // namespace

void ReadLongest(const Part& part, ModelLayers* layers) {
  for (std::string_view name : {"max_position_embeddings", "n_positions", "max_seq_len", "model_max_length",
                                "seq_length", "training_seqlen", "max_source_positions"}) {
    const nlohmann::json* given = part.config.Find(name);
    if (given == nullptr || !given->is_number()) continue;
    layers->longest = given->get<double>();
    layers->longest_field = name;
    return;
  }
}

absl::StatusOr<std::vector<ModelLayers>> RotaryLayersOf(const Part& part, const ModelLayers& common) {
  POSENC_RETURN_IF_ERROR(CheckHasRotary(part));
  if (!part.known && !MentionsRope(part)) {
    POSENC_ASSIGN_OR_RETURN(const auto model_type, part.config.String("model_type"));
    return InvalidArgument(model_type ? "UNSUPPORTED" : "MISSING", part.config.Path("model_type"),
                           model_type.value_or(std::string(kAbsent)),
                           "must be known, or the file must hold one of rope_theta, rope_scaling, rope_parameters, "
                           "rotary_dim, rotary_pct, qk_rope_head_dim");
  }

  POSENC_ASSIGN_OR_RETURN(RopeBlocks blocks, ReadRopeBlocks(part.config, part.type));
  const bool ignores_block = part.type.block_in == BlockIn::kNowhere && !blocks.empty();
  if (ignores_block) blocks.clear();
  POSENC_ASSIGN_OR_RETURN(const Types types, TypesOf(part, blocks, static_cast<int64_t>(common.layer_index.size())));
  std::vector<ModelLayers> result;
  for (const std::string& layer_type : types.distinct) {
    InterruptionPoint();
    Part own = part;  // a copy: notes are per layer type
    ModelLayers entry = common;
    entry.layer_type = layer_type;
    ReadLongest(part, &entry);
    entry.window = WindowOf(part, layer_type);
    if (!types.of_layer.empty()) {
      entry.layer_index.clear();
      for (size_t n = 0; n < types.of_layer.size(); ++n) {
        if (types.of_layer[n] == layer_type) entry.layer_index.push_back(static_cast<uint32_t>(n));
      }
    } else if (types.distinct.size() > 1) {
      entry.layer_index.clear();  // the file does not say which layers have which type
    }
    if (part.known) NoteNulls(own);
    NoteIgnored(own, ignores_block);
    NoteNumber(own, common.layer_index.size(), types.given);
    NoteNeeded(own, types.given);
    POSENC_ASSIGN_OR_RETURN(LayerBlock block, BlockFor(own, blocks, layer_type, types.of_layer));
    entry.scales_softmax = part.type.unrotated_dim.has_value();
    if (block.block) {
      POSENC_RETURN_IF_ERROR(ReadHeadDim(own, layer_type, entry.layer_index));
      auto settings = RotaryOf(own, *std::move(block.block), {block.class_theta, block.theta_field, block.flat});
      if (!settings.ok()) return settings.status();
      entry.rotary = *std::move(settings);
      entry.whole_head = own.whole_head;
      entry.rotary_offset = own.rotary_offset;
      entry.scales_softmax = entry.scales_softmax && !own.keeps_softmax;
    } else {
      own.Say("NO_ROPE", "layer_type", fmt::format("layers of type \"{}\" have no rotary embedding", layer_type));
    }
    if (!entry.rotary && HasAttention(layer_type)) {
      POSENC_ASSIGN_OR_RETURN(const auto scale, QueryScaleOf(own, nullptr));
      if (scale) entry.rotary = RotarySettings{.query_scale = scale};
    }
    entry.notes = std::move(own.notes);
    entry.fields = std::move(own.fields);
    result.push_back(std::move(entry));
  }
  return result;
}

}  // namespace posenc
