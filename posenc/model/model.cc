#include "posenc/model/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "posenc/base/shared_cache.h"
#include "posenc/base/status.h"
#include "posenc/gguf/gguf_reader.h"
#include "posenc/model/config_json.h"
#include "posenc/model/diffusers.h"
#include "posenc/model/layers.h"
#include "posenc/model/model_types.h"
#include "posenc/model/part.h"
#include "posenc/model/parts.h"
#include "posenc/model/recognize.h"
#include "posenc/model/unread_fields.h"

namespace posenc {

namespace {

// Bytes. Larger files are parsed by every call.
constexpr size_t kMaxCachedFile = 64 << 10;
constexpr size_t kLayerCacheBytes = 8 << 20;

absl::StatusOr<std::shared_ptr<const ParsedConfig>> Parsed(const ModelSource& source, const Limits& limits) {
  if (source.parsed != nullptr) return source.parsed;
  return ParseConfigJson(source.config_json, limits);
}

absl::StatusOr<Part> OpenPart(const ModelSource& source, const nlohmann::json& file) {
  POSENC_ASSIGN_OR_RETURN(Component component, SelectComponent(file, source.component, source.wanted));
  Part part{component.config, {}, component.type != nullptr, component.name, {}};
  if (part.known) {
    part.type = *component.type;
  } else if (const auto similar = RecognizedType(component.config, file)) {
    part.known = true;
    part.type = *similar->type;
    part.Say("RECOGNIZED", "model_type",
             fmt::format("\"{}\" is not known; the file names {}, so it is read as model_type \"{}\"",
                         Quote(component.model_type), Quote(similar->class_name), part.type.name));
  } else {
    const bool is_latent = component.config.Find("qk_rope_head_dim") != nullptr;
    if (!source.input_pairing) {
      return InvalidArgument(
          "MISSING", "input_pairing", "",
          fmt::format(
              "must be PAIRING_INTERLEAVED or PAIRING_HALF_SPLIT: {}, and the file is read by the general rules{}",
              component.model_type.empty() ? "the file has no model_type"
                                           : fmt::format("model_type \"{}\" is not known", Quote(component.model_type)),
              is_latent ? " of multi-head latent attention" : ""));
    }
    part.type.partial = 1;
    if (is_latent) part.type.unrotated_dim = 0;
    part.type.rotary_dim_field = "rotary_dim";
    part.Say("UNKNOWN_MODEL_TYPE", "model_type",
             fmt::format("\"{}\" is not known: the file is read by the general rules{}, with the request's pairing",
                         Quote(component.model_type), is_latent ? " of multi-head latent attention" : ""));
  }
  NoteUnreadParts(file, part);
  if (!component.nested) part.type.width = {};  // a whole file must give its own width
  if (!part.type.output_pairing) part.type.output_pairing = part.type.pairing;
  if (part.type.rules.adapt != nullptr) POSENC_RETURN_IF_ERROR(part.type.rules.adapt(part));
  if (source.input_pairing) {
    if (part.known && *source.input_pairing != part.type.pairing) {
      part.Say("PAIRING_OVERRIDDEN", "input_pairing", "the request's pairing replaces the model class's own");
    }
    part.type.pairing = *source.input_pairing;
    part.type.output_pairing = *source.input_pairing;
  }
  if (source.output_pairing) part.type.output_pairing = *source.output_pairing;
  return part;
}

absl::StatusOr<std::vector<ModelLayers>> ReadDiffusers(const ModelSource& source, const ConfigObject& config,
                                                       const Limits& limits) {
  if (!source.component.empty()) {
    return InvalidArgument("UNKNOWN_VALUE", "component", source.component,
                           "must be absent: a diffusers file has no parts");
  }
  POSENC_ASSIGN_OR_RETURN(ModelLayers layers, ReadDiffusersModel(config, source.wanted, limits));
  layers.original = "diffusers";
  if (layers.rotary) {
    if (source.input_pairing) layers.rotary->input_pairing = layers.rotary->output_pairing = source.input_pairing;
    if (source.output_pairing) layers.rotary->output_pairing = source.output_pairing;
  }
  return std::vector<ModelLayers>{std::move(layers)};
}

// Resolves kAny to the first kind that the part has: a score term, sines, a grid, a rotary embedding or a bias, a
// learned table.
absl::StatusOr<Wanted> WantedOf(const ModelSource& source, const Part& part) {
  if (source.wanted != Wanted::kAny) return source.wanted;
  const absl::Status terms = CheckTerms(part);
  if (terms.ok()) return Wanted::kTerms;
  if (DetailsOf(terms).reason != "UNSUPPORTED") return terms;
  if (part.type.sines) return Wanted::kSinusoidal;
  if (part.type.grid) return Wanted::kGrid;
  if (!part.known || IsSelected(part.type.scheme)) return Wanted::kRotaryOrBias;
  if (part.type.learned) return Wanted::kLearned;
  return terms;
}

// True for kinds that are added to the model's input and belong to no layer.
bool IsOfInput(Wanted wanted) {
  return wanted == Wanted::kLearned || wanted == Wanted::kSinusoidal || wanted == Wanted::kGrid;
}

absl::StatusOr<ModelLayers> InputOf(Part part, Wanted wanted) {
  ModelLayers input;
  ReadLongest(part, &input);
  input.precision = part.type.precision;
  if (wanted == Wanted::kLearned) {
    POSENC_ASSIGN_OR_RETURN(input.table, LearnedOf(part));
    if (part.type.scheme == Scheme::kAxial) input.precision = kHfEagerPrecision;  // not the rotation's
  } else if (wanted == Wanted::kSinusoidal) {
    POSENC_ASSIGN_OR_RETURN(input.sinusoidal, SinusoidalOf(part));
  } else {
    POSENC_ASSIGN_OR_RETURN(input.grid, GridOf(part));
  }
  input.notes = std::move(part.notes);
  input.fields = std::move(part.fields);
  return input;
}

struct CachedLayers {
  ModelLayers layers;
  size_t bytes;
};

SharedCache<CachedLayers>& LayerCache() {
  static SharedCache<CachedLayers> cache(kLayerCacheBytes, [](const CachedLayers& cached) { return cached.bytes; });
  return cache;
}

// Bytes that the layers take, but for a few short texts.
size_t BytesOf(const ModelLayers& layers) {
  size_t bytes = sizeof(layers) + layers.layer_index.capacity() * sizeof(uint32_t);
  for (const Note& note : layers.notes) bytes += sizeof(note) + note.field.capacity() + note.message.capacity();
  for (const FileField& field : layers.fields) {
    bytes += sizeof(field) + field.setting.capacity() + field.path.capacity() + field.other.capacity();
  }
  if (!layers.rotary) return bytes;
  const auto add = [&bytes]<typename Field>(std::string_view, const Field& field) {
    if constexpr (requires { field.capacity(); }) bytes += field.capacity() * sizeof(*field.data());
  };
  std::visit(
      [&add](const auto& frequencies) {
        if constexpr (HasFields<std::decay_t<decltype(frequencies)>>) VisitFields(frequencies, add);
      },
      layers.rotary->frequencies);
  return bytes;
}

// Returns everything that SelectLayer() reads, as one unambiguous text.
std::string KeyOf(const ModelSource& source, const Limits& limits) {
  const auto* type = std::get_if<std::string>(&source.layer);
  const auto* index = std::get_if<uint32_t>(&source.layer);
  const auto number = [](std::optional<Pairing> pairing) { return pairing ? static_cast<int64_t>(*pairing) : -1; };
  const std::string_view layer_type = type == nullptr ? std::string_view() : std::string_view(*type);
  const std::string_view texts[] = {source.config_json, source.gguf, source.component, layer_type};
  const int64_t numbers[] = {
      limits.max_config_json_bytes,
      limits.max_rotary_dim,
      static_cast<int64_t>(source.layer.index()),
      index == nullptr ? 0 : int64_t{*index},
      number(source.input_pairing),
      number(source.output_pairing),
      static_cast<int64_t>(source.wanted),
      static_cast<int64_t>(texts[0].size()),
      static_cast<int64_t>(texts[1].size()),
      static_cast<int64_t>(texts[2].size()),
  };
  std::string key(reinterpret_cast<const char*>(numbers), sizeof(numbers));
  for (const std::string_view text : texts) key += text;
  return key;
}

}  // namespace

absl::Status Parse(const Limits& limits, ModelSource* source) {
  if (!source->gguf.empty()) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(source->parsed, Parsed(*source, limits));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ComponentsOf(const ModelSource& source, const Limits& limits) {
  if (!source.gguf.empty()) return std::vector<std::string>{""};
  POSENC_ASSIGN_OR_RETURN(const auto parsed, Parsed(source, limits));
  const nlohmann::json& file = parsed->tree;
  if (file.contains(kClassName) && !file.contains("model_type")) return std::vector<std::string>{""};
  return ComponentNames(file, source.wanted);
}

absl::StatusOr<std::vector<ModelLayers>> ReadModel(const ModelSource& source, const Limits& limits) {
  if (!source.gguf.empty()) return ReadGgufModel(source, limits);
  POSENC_ASSIGN_OR_RETURN(const auto parsed, Parsed(source, limits));
  const nlohmann::json& file = parsed->tree;
  if (file.contains(kClassName) && !file.contains("model_type")) {
    return ReadDiffusers(source, ConfigObject(std::string(kConfigJson), file), limits);
  }
  POSENC_ASSIGN_OR_RETURN(Part part, OpenPart(source, file));
  POSENC_ASSIGN_OR_RETURN(const Wanted wanted, WantedOf(source, part));
  if (IsOfInput(wanted)) {
    POSENC_ASSIGN_OR_RETURN(ModelLayers input, InputOf(std::move(part), wanted));
    return std::vector<ModelLayers>{std::move(input)};
  }
  POSENC_ASSIGN_OR_RETURN(const int64_t layers, LayerCount(part));
  ModelLayers common;
  common.precision = part.type.precision;
  common.original = part.type.original;
  for (int64_t n = 0; n < layers; ++n) common.layer_index.push_back(static_cast<uint32_t>(n));
  if (wanted == Wanted::kTerms) {
    POSENC_RETURN_IF_ERROR(CheckTerms(part));
    std::vector<ModelLayers> all;
    if (IsInkling(part.type.terms)) {
      POSENC_ASSIGN_OR_RETURN(all, InklingLayersOf(part, common));
    } else {
      POSENC_ASSIGN_OR_RETURN(common.terms, TermsOf(part));
      common.notes = std::move(part.notes);
      common.fields = std::move(part.fields);
      all.push_back(std::move(common));
    }
    NoteMisspelled(part, all);
    return all;
  }
  if (part.type.scheme == Scheme::kSwinV2) return SwinV2Of(part, common);
  POSENC_ASSIGN_OR_RETURN(const bool has_alibi, HasAlibi(part));
  const Scheme scheme = part.type.scheme;
  const bool is_window = scheme == Scheme::kSwin || scheme == Scheme::kBeit;
  if (has_alibi || is_window || scheme == Scheme::kT5 || scheme == Scheme::kAxial) {
    if (has_alibi) {
      POSENC_ASSIGN_OR_RETURN(common.bias, AlibiOf(part));
      NoteUnreadRotary(part);
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
    common.fields = std::move(part.fields);
    common.whole_head = part.whole_head;
    common.bias_table_rows = part.bias_table_rows;
    if (common.bias && !has_alibi) common.bias_table_heads = TableHeadsOf(part);
    std::vector<ModelLayers> all{std::move(common)};
    if (!has_alibi) POSENC_RETURN_IF_ERROR(NoteUnreadFields(part, all));
    return all;
  }
  POSENC_ASSIGN_OR_RETURN(std::vector<ModelLayers> all, RotaryLayersOf(part, common));
  POSENC_RETURN_IF_ERROR(NoteUnreadFields(part, all));
  return all;
}

absl::Status InFile(const ModelLayers& layers, const absl::Status& status) {
  if (status.ok()) return status;
  const auto source_of = [&layers](const std::string& setting) {
    const FileField* source = nullptr;
    for (const FileField& candidate : layers.fields) {
      const size_t size = candidate.setting.size();
      const bool holds = setting.starts_with(candidate.setting) &&
                         (setting.size() == size || setting[size] == '.' || setting[size] == '[');
      if (holds && (source == nullptr || source->setting.size() <= size)) source = &candidate;
    }
    return source;
  };
  const FileField* source = source_of(DetailsOf(status).field);
  absl::Status renamed = Renamed(status, [&](const std::string& setting) {
    const FileField* found = source_of(setting);
    if (found == nullptr) return fmt::format("{}.{}", layers.file, setting);
    return found->words.empty() ? found->path + setting.substr(found->setting.size()) : found->path;
  });
  if (source == nullptr) return renamed;
  const ErrorDetails details = DetailsOf(renamed);
  if (!source->words.empty()) {
    return InvalidArgument(details.reason, details.field, details.value + source->words, details.limit);
  }
  if (source->other.empty()) return renamed;
  const auto name = [](std::string_view path) { return path.substr(path.rfind('.') + 1); };
  const std::string value = fmt::format("{} = {} / {}", details.value, name(source->path), name(source->other));
  return Against(source->other, InvalidArgument(details.reason, details.field, value, details.limit));
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
    size_t count = 0;
    for (const ModelLayers& layers : all) count += layers.layer_index.size();
    if (count == 0 && all.size() == 1 && all[0].layer_type.empty()) return std::move(all[0]);  // alike on every layer
    if (count == 0 && all.size() > 1) {
      return InvalidArgument("NOT_READ", "layer_index", fmt::format("{}", *index),
                             fmt::format("must be absent: the file does not say which layers have which type; set "
                                         "layer_type to one of {}",
                                         choices));
    }
    return InvalidArgument("OUT_OF_RANGE", "layer_index", fmt::format("{}", *index),
                           count == 0 ? std::string("must be absent: the file does not give the number of layers")
                                      : fmt::format("must be 0 .. {}", count - 1));
  }
  if (const auto* type = std::get_if<std::string>(&source.layer)) {
    if (all.size() == 1 && all[0].layer_type.empty()) return std::move(all[0]);  // one entry serves every type
    for (ModelLayers& layers : all) {
      if (layers.layer_type == *type) return std::move(layers);
    }
    return InvalidArgument("UNKNOWN_VALUE", "layer_type", *type, fmt::format("must be one of {}", choices));
  }
  if (all.size() == 1) return std::move(all[0]);
  return InvalidArgument("MISSING", "layer_type", "",
                         fmt::format("must be one of {}, or layer_index must be given: the layers differ", choices));
}

std::shared_ptr<const ModelLayers> FindCachedLayer(const ModelSource& source, const Limits& limits) {
  const auto found = source.config_json.size() + source.gguf.size() > kMaxCachedFile
                         ? nullptr
                         : LayerCache().Find(KeyOf(source, limits));
  return found == nullptr ? nullptr : std::shared_ptr<const ModelLayers>(found, &found->layers);
}

absl::StatusOr<std::shared_ptr<const ModelLayers>> CachedLayer(const ModelSource& source, const Limits& limits) {
  const size_t file = source.config_json.size() + source.gguf.size();
  if (file > kMaxCachedFile) {
    POSENC_ASSIGN_OR_RETURN(ModelLayers layers, SelectLayer(source, limits));
    return std::make_shared<const ModelLayers>(std::move(layers));
  }
  const auto select = [&]() -> absl::StatusOr<CachedLayers> {
    POSENC_ASSIGN_OR_RETURN(ModelLayers layers, SelectLayer(source, limits));
    const size_t bytes = BytesOf(layers);
    return CachedLayers{std::move(layers), bytes};
  };
  POSENC_ASSIGN_OR_RETURN(const auto found, LayerCache().Get(KeyOf(source, limits), select));
  return std::shared_ptr<const ModelLayers>(found, &found->layers);
}

}  // namespace posenc
