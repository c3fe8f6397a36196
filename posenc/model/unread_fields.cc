#include "posenc/model/unread_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "posenc/model/parts.h"

namespace posenc {
namespace {

using nlohmann::json;
using Names = std::set<std::string, std::less<>>;

bool HasOneOf(std::string_view name, std::initializer_list<std::string_view> words) {
  const auto has = [name](std::string_view word) { return name.find(word) != name.npos; };
  return std::any_of(words.begin(), words.end(), has);
}

bool IsAboutRotation(std::string_view name) { return HasOneOf(name, {"rope", "rotary", "yarn", "alibi"}); }

// Returns the names of the fields that the readers look for in a file of this type: in an empty one, and in one with
// heads and layers.
Names FieldsOf(const ModelType& type, bool known) {
  static const json& kEmpty = *new json(json::object());
  static const json& kSmall = *new json({{"hidden_size", 512}, {"num_attention_heads", 8}, {"num_hidden_layers", 8}});
  Names names;
  for (const json* file : {&kEmpty, &kSmall}) {
    Part part{ConfigObject(std::string(kConfigJson), *file), type, known, "", {}};
    if (type.rules.adapt != nullptr) type.rules.adapt(part).IgnoreError();
    ModelLayers common;
    for (uint32_t layer = 0; layer < 8; ++layer) common.layer_index.push_back(layer);
    if (type.scheme == Scheme::kAxial) {
      AxialOf(part).IgnoreError();
    } else {
      RotaryLayersOf(part, common).IgnoreError();
    }
    names.insert(part.config.read().begin(), part.config.read().end());
  }
  return names;
}

bool HasRotary(const ModelType& type) {
  return type.scheme == Scheme::kRotary || type.scheme == Scheme::kFalcon || type.scheme == Scheme::kAxial;
}

// The names of the fields of each known type, by its name.
const std::map<std::string_view, Names>& FieldsOfKnownTypes() {
  static const auto& all = *[] {
    auto* fields = new std::map<std::string_view, Names>();
    for (const ModelType* type : AllModelTypes()) {
      if (HasRotary(*type)) (*fields)[type->name] = FieldsOf(*type, /*known=*/true);
    }
    return fields;
  }();
  return all;
}

bool IsReadForAnyType(std::string_view name) {
  const auto& all = FieldsOfKnownTypes();
  return std::any_of(all.begin(), all.end(), [name](const auto& fields) { return fields.second.contains(name); });
}

// True for a block of a scaling, and for a field beside other fields that says which scaling there is.
bool IsScaling(std::string_view name, const json& value) {
  if (value.is_object()) {
    return IsAboutRotation(name) || value.contains("rope_theta") || value.contains("original_max_position_embeddings");
  }
  const auto* text = value.get_ptr<const std::string*>();
  const bool is_none = text != nullptr      ? text->empty() || *text == "none" || *text == "default"
                       : value.is_boolean() ? value == false
                                            : value == 1;
  return IsAboutRotation(name) && HasOneOf(name, {"scal", "yarn"}) && !is_none;
}

// True if a note is about this field or a field in it.
bool IsNoted(const ModelLayers& layers, const std::string& path) {
  return std::any_of(layers.notes.begin(), layers.notes.end(), [&path](const Note& note) {
    return note.field.starts_with(path) &&
           (note.field.size() == path.size() || note.field[path.size()] == '.' || note.field[path.size()] == '[');
  });
}

// True if one character that is inserted, left out, replaced or moved makes `a` of `b`.
bool IsOneEdit(std::string_view a, std::string_view b) {
  if (a.size() < b.size()) std::swap(a, b);
  if (a.size() > b.size() + 1 || a == b) return false;
  const size_t first = std::mismatch(b.begin(), b.end(), a.begin()).first - b.begin();
  const std::string_view left_a = a.substr(first), left_b = b.substr(first);
  if (a.size() > b.size()) return left_a.substr(1) == left_b;
  if (left_a.substr(1) == left_b.substr(1)) return true;
  const size_t same = std::mismatch(left_a.rbegin(), left_a.rend(), left_b.rbegin()).first - left_a.rbegin();
  const std::string_view mid_a = left_a.substr(0, left_a.size() - same), mid_b = left_b.substr(0, left_b.size() - same);
  const auto moves_first = [](std::string_view x, std::string_view y) {
    return x.front() == y.back() && x.substr(1) == y.substr(0, y.size() - 1);
  };
  return moves_first(mid_a, mid_b) || moves_first(mid_b, mid_a);
}

// Returns the field that an unread one is probably meant to be, or "".
std::string_view MeantBy(std::string_view name, const ConfigObject& config) {
  constexpr size_t kShortest = 7;  // shorter names are often one edit from another class's field
  if (name.size() < kShortest) return "";
  for (const std::string& known : config.read()) {
    if (known.size() >= kShortest && !config.tree().contains(known) && IsOneEdit(name, known)) return known;
  }
  return "";
}

}  // namespace

void NoteMisspelled(const Part& part, std::vector<ModelLayers>& all) {
  for (const auto& [name, value] : part.config.tree().items()) {
    if (value.is_null() || part.config.read().contains(name)) continue;
    const std::string_view meant = MeantBy(name, part.config);
    if (meant.empty()) continue;
    for (ModelLayers& layers : all) {
      AddNote({"NOT_USED", part.config.Path(name), fmt::format("is not read; did you mean {}?", meant)}, layers.notes);
    }
  }
}

absl::Status NoteUnreadFields(const Part& part, std::vector<ModelLayers>& all) {
  NoteMisspelled(part, all);
  if (!HasRotary(part.type)) return absl::OkStatus();
  std::vector<std::string> unread;
  for (const auto& [name, value] : part.config.tree().items()) {
    if (value.is_null() || part.config.read().contains(name)) continue;
    const bool scales = !part.known && IsScaling(name, value);
    if (scales || IsAboutRotation(name) || (!part.known && IsReadForAnyType(name))) unread.push_back(name);
  }
  if (unread.empty()) return absl::OkStatus();
  const Names own = FieldsOf(part.type, part.known);
  for (const std::string& name : unread) {
    if (own.contains(name)) continue;  // read in files that do not have another field
    const std::string path = part.config.Path(name);
    const json& value = part.config.tree()[name];
    if (!part.known && IsScaling(name, value)) {
      return InvalidArgument("UNSUPPORTED", path, AsText(value),
                             "must be absent, or rope_scaling or rope_parameters: the model_type is not known, and the "
                             "general rules know no other scaling");
    }
    for (ModelLayers& layers : all) {
      if (IsNoted(layers, path)) continue;
      AddNote({"NOT_USED", path,
               part.known ? fmt::format("model_type \"{}\" does not read it", part.type.name)
                          : "the general rules do not read it; the model's own code may"},
              layers.notes);
    }
  }
  return absl::OkStatus();
}

}  // namespace posenc
