#include "posenc/model/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "posenc/base/status.h"

namespace posenc {
namespace {

constexpr std::string_view kSuffix = "_config";
constexpr size_t kMaxParts = 32;  // models have up to six
constexpr int kMaxNesting = 3;    // thinker_config.text_config

std::string NameOf(const std::string& prefix, std::string_view field) {
  if (field.ends_with(kSuffix)) field.remove_suffix(kSuffix.size());
  return prefix.empty() ? std::string(field) : fmt::format("{}.{}", prefix, field);
}

// Returns the parts that the type's row lists, text_config, and other NAME_config objects with a known model_type.
std::vector<PartType> PartsOf(const ConfigObject& config, const ModelType* type) {
  std::vector<PartType> parts = type != nullptr ? type->parts : std::vector<PartType>();
  for (const auto& [key, value] : config.tree().items()) {
    const std::string_view field = key;
    const auto same = [field](const PartType& part) { return part.field == field; };
    if (!value.is_object() || !field.ends_with(kSuffix) || std::any_of(parts.begin(), parts.end(), same)) continue;
    const auto model_type = value.find("model_type");
    const bool known = model_type != value.end() && model_type->is_string() &&
                       FindModelType(model_type->get_ref<const std::string&>()) != nullptr;
    if (known || field == "text_config") parts.push_back({field, ""});
    if (parts.size() >= kMaxParts) break;
  }
  return parts;
}

class Search {
 public:
  // Appends the parts of an object, and the object itself unless it is composite.
  absl::Status Add(const std::string& prefix, const ConfigObject& config, std::string_view implied, int depth) {
    POSENC_ASSIGN_OR_RETURN(const auto said, config.String("model_type"));
    std::string model_type = NameFor(config, said && !said->empty() ? *said : std::string(implied));
    const ModelType* type = FindModelType(model_type);
    // Old files give a part the model_type of the whole file: use the implied type.
    if (depth > 0 && type != nullptr && type->scheme == Scheme::kParts && FindModelType(implied) != nullptr &&
        FindModelType(implied)->scheme != Scheme::kParts) {
      model_type = std::string(implied);
      type = FindModelType(implied);
    }
    const std::vector<PartType> parts = depth < kMaxNesting ? PartsOf(config, type) : std::vector<PartType>();
    const bool composite = type != nullptr ? type->scheme == Scheme::kParts : !parts.empty();
    if (!composite && all_.size() < kMaxParts) {
      all_.push_back({prefix.empty() ? "text" : prefix, config, model_type, type, depth > 0});
    }
    for (const PartType& part : parts) {
      POSENC_ASSIGN_OR_RETURN(const auto object, config.Object(part.field));
      if (!object && part.field != "text_config") continue;
      const std::string name = NameOf(prefix, part.field);
      if (object) {
        POSENC_RETURN_IF_ERROR(Add(name, *object, part.model_type, depth + 1));
      } else if (type != nullptr && type->flat_text) {
        all_.push_back({name, config, std::string(part.model_type), FindModelType(part.model_type), true});
      } else {  // part absent from the file: class defaults
        const ConfigObject defaults(config.Path(part.field), kEmpty);
        POSENC_RETURN_IF_ERROR(Add(name, defaults, part.model_type, depth + 1));
      }
    }
    return absl::OkStatus();
  }

  const std::vector<Component>& all() const { return all_; }

 private:
  static inline const nlohmann::json& kEmpty = *new nlohmann::json(nlohmann::json::object());

  std::vector<Component> all_;
};

// `type` is null if the model_type is unknown.
bool MayHave(const ModelType* type, Wanted wanted) {
  switch (wanted) {
    case Wanted::kRotaryOrBias: return type == nullptr || IsSelected(type->scheme);
    case Wanted::kTerms: return type != nullptr && type->terms != Terms::kNone;
    case Wanted::kLearned: return type != nullptr && type->learned.has_value();
    case Wanted::kSinusoidal: return type != nullptr && type->sines.has_value();
    case Wanted::kGrid: return type != nullptr && type->grid.has_value();
    case Wanted::kAny: break;
  }
  for (Wanted each : {Wanted::kRotaryOrBias, Wanted::kTerms, Wanted::kLearned, Wanted::kSinusoidal, Wanted::kGrid}) {
    if (MayHave(type, each)) return true;
  }
  return false;
}

std::string Describe(const Component& part) {
  if (part.type == nullptr) return fmt::format("\"{}\" has an unknown type", Quote(part.name));
  return fmt::format("\"{}\" ({}) has {}", Quote(part.name), part.type->name, SchemeName(part.type->scheme));
}

}  // namespace

bool NamesClass(const ConfigObject& config, std::string_view name) {
  const nlohmann::json* names = config.Find("architectures");
  if (names == nullptr || !names->is_array()) return false;
  return std::any_of(names->begin(), names->end(), [name](const nlohmann::json& each) { return each == name; });
}

std::string NameFor(const ConfigObject& config, std::string model_type) {
  if (model_type.empty() && config.Has("dim") && config.Has("n_layers") && config.Has("n_heads"))
    return "mistral_params";
  if (model_type == "git" && NamesClass(config, "Grok1ForCausalLM")) return "grok_2";
  if (model_type == "bailing_moe" && NamesClass(config, "BailingMoeV2ForCausalLM")) return "bailing_moe_v2";
  return model_type;
}

namespace {

bool HasStacks(const ModelType* type, Wanted wanted) {
  return type != nullptr && type->scheme == Scheme::kT5 && !type->one_stack && MayHave(type, wanted);
}

// The parts with the kind that a call for `wanted` reads: for kAny a rotary embedding or a bias, if a part has one.
std::vector<const Component*> Fitting(const Search& search, Wanted wanted) {
  const auto with = [&search](Wanted what) {
    std::vector<const Component*> parts;
    for (const Component& part : search.all()) {
      if (MayHave(part.type, what)) parts.push_back(&part);
    }
    return parts;
  };
  if (wanted == Wanted::kAny) {
    if (std::vector<const Component*> first = with(Wanted::kRotaryOrBias); !first.empty()) return first;
  }
  return with(wanted);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ComponentNames(const nlohmann::json& file, Wanted wanted) {
  const ConfigObject whole(std::string(kConfigJson), file);
  POSENC_ASSIGN_OR_RETURN(const auto model_type, whole.String("model_type"));
  if (HasStacks(model_type ? FindModelType(*model_type) : nullptr, wanted)) {
    return std::vector<std::string>{"encoder", "decoder"};
  }
  Search search;
  POSENC_RETURN_IF_ERROR(search.Add("", whole, "", 0));
  std::vector<std::string> names;
  for (const Component& part : search.all()) {
    if (MayHave(part.type, wanted)) names.push_back(part.name);
  }
  if (names.size() == 1) names[0].clear();
  return names;
}

absl::StatusOr<Component> SelectComponent(const nlohmann::json& file, const std::string& name, Wanted wanted) {
  const ConfigObject whole(std::string(kConfigJson), file);
  POSENC_ASSIGN_OR_RETURN(const auto model_type, whole.String("model_type"));
  const ModelType* type = model_type ? FindModelType(*model_type) : nullptr;
  if (HasStacks(type, wanted)) return Component{name, whole, *model_type, type, false};

  Search search;
  POSENC_RETURN_IF_ERROR(search.Add("", whole, "", 0));
  const std::vector<const Component*> selected = Fitting(search, wanted);
  std::string names, all;
  for (const Component& part : search.all()) all += fmt::format("{}{}", all.empty() ? "" : "; ", Describe(part));
  for (const Component* part : selected) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", Quote(part->name));
  }
  for (const Component& part : search.all()) {
    if (part.name != name) continue;
    if (!MayHave(part.type, wanted)) {
      return InvalidArgument("UNSUPPORTED", "component", name,
                             fmt::format("must be a part with what the call needs: {}", Describe(part)));
    }
    return part;
  }
  if (!name.empty()) {
    return InvalidArgument(
        "UNKNOWN_VALUE", "component", name,
        names.empty() ? fmt::format("must be absent: {}", all) : fmt::format("must be one of {}", names));
  }
  if (selected.empty()) {
    return InvalidArgument(model_type ? "UNSUPPORTED" : "MISSING", whole.Path("model_type"),
                           model_type.value_or(std::string(kAbsent)),
                           fmt::format("must have a part with what the call needs{}{}", all.empty() ? "" : ": ", all));
  }
  if (selected.size() > 1) {
    return InvalidArgument("MISSING", "component", "",
                           fmt::format("must be one of {}: the file has several parts", names));
  }
  return *selected[0];
}

}  // namespace posenc
