#include "posenc/positions/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/model/model_types.h"
#include "posenc/model/part.h"
#include "posenc/model/recognize.h"

namespace posenc {
namespace {

constexpr std::string_view kConfigSuffix = "_config";
constexpr int kMaxDepth = 2;

struct Candidate {
  std::string name;  // "" for the whole file, "thinker", ...
  SelectedRule selected;
};

// The model_type of an object that gives none, by the object that it is a part of.
std::string_view ImpliedType(const ModelType* parent, std::string_view field) {
  if (parent == nullptr) return "";
  for (const PartType& part : parent->parts) {
    if (part.field == field) return part.model_type;
  }
  return "";
}

// Appends the object, if its model_type has a rule, or else the objects in it that have one.
absl::Status AddCandidates(const std::string& name, const ConfigObject& object, std::string_view implied, int depth,
                           std::vector<Candidate>* candidates) {
  POSENC_ASSIGN_OR_RETURN(const auto given, object.String("model_type"));
  const std::string model_type = given && !given->empty() ? *given : std::string(implied);
  const PositionRule* rule = FindPositionRule(model_type);
  if (rule != nullptr) {
    candidates->push_back({name, {rule, object}});
    return absl::OkStatus();
  }
  if (depth == kMaxDepth) return absl::OkStatus();
  const ModelType* type = FindModelType(model_type);
  for (const auto& [key, value] : object.tree().items()) {
    if (!value.is_object() || !key.ends_with(kConfigSuffix)) continue;
    const std::string part = key.substr(0, key.size() - kConfigSuffix.size());
    POSENC_RETURN_IF_ERROR(AddCandidates(name.empty() ? part : fmt::format("{}.{}", name, part),
                                         ConfigObject(object.Path(key), value), ImpliedType(type, key), depth + 1,
                                         candidates));
  }
  return absl::OkStatus();
}

// True for a model with positions of several axes that is no row of PositionRules.
bool CountsOtherwise(const ModelType& type) {
  const auto several = [](const ModelType* row) { return row != nullptr && row->mrope != MropeOrder::kNone; };
  if (type.parts.empty()) return type.scheme == Scheme::kAxial || (several(&type) && !type.name.ends_with("_text"));
  return std::any_of(type.parts.begin(), type.parts.end(),
                     [&](const PartType& part) { return several(FindModelType(part.model_type)); });
}

// The object of the file, or of its text part, whose ids are rows of a table that begins with padding. `type` is that
// of the file, or null.
absl::StatusOr<std::optional<ConfigObject>> PaddedTableOf(const ConfigObject& whole, const ModelType* type,
                                                          const std::string& component) {
  constexpr std::string_view kText = "text_config";
  if (type != nullptr && CountsAfterPadding(*type)) return whole;
  if (!component.empty() && component != "text") return std::nullopt;
  POSENC_ASSIGN_OR_RETURN(const auto text, whole.Object(kText));
  if (!text) return std::nullopt;
  POSENC_ASSIGN_OR_RETURN(const auto given, text->String("model_type"));
  const ModelType* of_text = FindModelType(given && !given->empty() ? *given : std::string(ImpliedType(type, kText)));
  return of_text != nullptr && CountsAfterPadding(*of_text) ? text : std::nullopt;
}

// True if `component` is the candidate itself or its text part.
bool Selects(const std::string& component, const std::string& name) {
  return component == name || component == (name.empty() ? "text" : name + ".text");
}

}  // namespace

absl::StatusOr<SelectedRule> SelectPositionRule(const nlohmann::json& file, const std::string& component) {
  const ConfigObject whole(std::string(kConfigJson), file);
  std::vector<Candidate> candidates;
  POSENC_RETURN_IF_ERROR(AddCandidates("", whole, "", 0, &candidates));
  std::string names;
  for (const Candidate& candidate : candidates) {
    if (Selects(component, candidate.name)) return candidate.selected;
    names +=
        fmt::format("{}\"{}\"", names.empty() ? "" : ", ", Quote(candidate.name.empty() ? "text" : candidate.name));
  }
  if (component.empty() && candidates.size() == 1) return candidates[0].selected;
  if (!candidates.empty()) {
    return InvalidArgument(component.empty() ? "MISSING" : "UNKNOWN_VALUE", "component", component,
                           fmt::format("must be one of {}, which compute position ids", names));
  }
  POSENC_ASSIGN_OR_RETURN(const auto given, whole.String("model_type"));
  const std::string name = NameFor(whole, given.value_or(""));
  const auto model_type = name.empty() ? std::nullopt : std::optional<std::string>(name);
  const ModelType* type = FindModelType(name);
  if (!component.empty()) {
    POSENC_ASSIGN_OR_RETURN(const Component part, SelectComponent(file, component, Wanted::kAny));
    if (part.type != nullptr && CountsOtherwise(*part.type)) {
      return InvalidArgument(
          "UNSUPPORTED", "component", component,
          fmt::format("must be a part that counts its tokens: model_type \"{}\" does not", part.type->name));
    }
  }
  POSENC_ASSIGN_OR_RETURN(const auto padded, PaddedTableOf(whole, type, component));
  if (padded) return SelectedRule{&PaddedTablePositions(), *padded};
  if (type != nullptr && type->rules.adapt != nullptr) {  // a file that the type's row refuses
    Part part{whole, *type, true, "", {}};
    if (const absl::Status adapted = type->rules.adapt(part); DetailsOf(adapted).reason == "UNSUPPORTED")
      return adapted;
  }
  if ((type == nullptr && !RecognizedType(whole, file)) || (type != nullptr && CountsOtherwise(*type))) {
    return InvalidArgument(model_type ? "UNSUPPORTED" : "MISSING", whole.Path("model_type"),
                           model_type.value_or(std::string(kAbsent)),
                           "must be a model type whose rule is known: how others count positions is not guessed");
  }
  return SelectedRule{&PlainPositions(), whole};
}

}  // namespace posenc
