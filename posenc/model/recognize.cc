#include "posenc/model/recognize.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"

namespace posenc {
namespace {

using nlohmann::json;

constexpr size_t kMostNames = 32;

// "Deepseek_V3" and "deepseek-v3" are "deepseekv3".
std::string Letters(std::string_view name) {
  std::string letters;
  for (char c : name) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)))
      letters += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  return letters;
}

// The class's name without its module and its role: "configuration_deepseek.DeepseekV3Config" is "DeepseekV3".
std::string_view Stem(std::string_view name) {
  name.remove_prefix(name.rfind('.') + 1);  // 0 if there is none
  for (std::string_view role : {"ForCausalLM", "ForConditionalGeneration", "LMHeadModel", "Config", "Model"}) {
    if (!name.ends_with(role)) continue;
    name.remove_suffix(role.size());
    break;
  }
  return name;
}

// Names of classes in auto_map, whose values are a name or a list of names; else in architectures.
std::vector<std::string> ClassNames(const json& object) {
  std::vector<std::string> names;
  const auto add = [&names](const json& value) {
    if (value.is_string() && names.size() < kMostNames) names.push_back(value.get<std::string>());
  };
  const auto map = object.find("auto_map");
  if (map != object.end() && map->is_object() && !map->empty()) {
    for (const auto& [key, value] : map->items()) {
      if (!key.starts_with("AutoTokenizer") && !key.starts_with("AutoProcessor")) add(value);
    }
    return names;
  }
  const auto architectures = object.find("architectures");
  if (architectures == object.end() || !architectures->is_array()) return names;
  for (const json& name : *architectures) add(name);
  return names;
}

bool IsPartOfModel(const std::string& key, const json& value) {
  if (!value.is_object()) return false;
  if (!key.ends_with("_config") && key != "visual" && key != "vision" && key != "audio" && key != "vision_encoder")
    return false;
  const auto marks = {"hidden_size", "num_attention_heads", "num_hidden_layers", "embed_dim", "depth", "layers"};
  return std::any_of(marks.begin(), marks.end(), [&value](const char* mark) { return value.contains(mark); });
}

bool IsRead(const json& file, const std::string& key, const json& value) {
  if (key == "text_config") return true;
  const auto known = [](const json& object) -> const ModelType* {
    const auto model_type = object.find("model_type");
    const bool is_text = model_type != object.end() && model_type->is_string();
    return is_text ? FindModelType(model_type->get_ref<const std::string&>()) : nullptr;
  };
  if (known(value) != nullptr) return true;
  const ModelType* whole = known(file);
  if (whole == nullptr) return false;
  return std::any_of(whole->parts.begin(), whole->parts.end(),
                     [&key](const PartType& part) { return part.field == key && FindModelType(part.model_type); });
}

}  // namespace

std::optional<Recognized> RecognizedType(const ConfigObject& part, const json& file) {
  std::vector<std::string> names = ClassNames(part.tree());
  if (names.empty()) names = ClassNames(file);
  for (const std::string& name : names) {
    const std::string letters = Letters(Stem(name));
    for (const ModelType* type : AllModelTypes()) {
      if (type->scheme == Scheme::kRotary && Letters(type->name) == letters) return Recognized{type, name};
    }
  }
  return std::nullopt;
}

void NoteUnreadParts(const json& file, Part& part) {
  constexpr std::string_view kDualChunk = "dual_chunk_attention_config";
  if (part.config.Find(kDualChunk) != nullptr) {
    part.Say("NOT_USED", std::string(kDualChunk),
             "as in transformers: positions are not cut into chunks; the model's own code does this above chunk_size");
  }
  size_t unread = 0;
  for (const auto& [key, value] : file.items()) {
    if (!IsPartOfModel(key, value) || IsRead(file, key, value)) continue;
    if (++unread > kMostNames) break;
    part.Say("NOT_READ", fmt::format("{}.{}", kConfigJson, Quote(key)),
             "this part of the model has no known model_type: the answer is about another part");
  }
}

void NoteUnreadRotary(Part& part) {
  for (std::string_view name :
       {"rope_theta", "rope_scaling", "rope_parameters", "rotary_dim", "rotary_pct", "partial_rotary_factor"}) {
    if (part.config.Find(name) == nullptr) continue;
    part.Say("NOT_USED", std::string(name), "the layers have ALiBi and no rotary embedding");
  }
}

}  // namespace posenc
