#include "posenc/model/diffusers.h"

#include <fmt/format.h>

#include "posenc/base/status.h"
#include "posenc/model/diffusers_types.h"

namespace posenc {
namespace {

std::string ClassPath() { return fmt::format("{}.{}", kConfigJson, kClassName); }

absl::StatusOr<bool> IsSet(const ConfigObject& config, std::string_view flag) {
  if (flag.empty()) return true;
  POSENC_ASSIGN_OR_RETURN(const auto set, config.Bool(flag));
  return set.value_or(false);
}

// Resolves kAny: the rotary embedding, unless the file switches it off and the class has a grid; else sines or a table.
absl::StatusOr<Wanted> WantedOf(const ConfigObject& config, const DiffusersType& type, Wanted wanted) {
  if (wanted != Wanted::kAny) return wanted;
  if (type.rotary) {
    POSENC_ASSIGN_OR_RETURN(const bool has_rotary, IsSet(config, type.rotary->only_if));
    if (has_rotary || !type.grid) return Wanted::kRotaryOrBias;
  }
  return type.sines ? Wanted::kSinusoidal : type.grid ? Wanted::kGrid : type.table ? Wanted::kLearned : wanted;
}

absl::Status HasOther(const DiffusersType& type) {
  if (!type.selected())
    return InvalidArgument("UNSUPPORTED", ClassPath(), type.class_name,
                           fmt::format("must be another class: {}", type.instead));
  std::string has;
  for (const auto& [is_there, what] : {std::pair{type.rotary.has_value(), "a rotary embedding: ApplyRotary"},
                                       {type.grid.has_value(), "a sinusoidal grid embedding: GenerateEmbedding.grid"},
                                       {type.sines.has_value(), "a sinusoidal embedding: GenerateEmbedding.sinusoidal"},
                                       {type.table.has_value(), "a learned table: GenerateEmbedding.learned"}}) {
    if (is_there) has += (has.empty() ? "must be another class: this one has " : "; and ") + std::string(what);
  }
  return InvalidArgument("UNSUPPORTED", ClassPath(), type.class_name, has);
}

absl::Status CheckHasRotary(const ConfigObject& config, const DiffusersType& type) {
  POSENC_ASSIGN_OR_RETURN(const bool has_rotary, IsSet(config, type.rotary->only_if));
  if (has_rotary) return absl::OkStatus();
  return InvalidArgument("UNSUPPORTED", config.Path(type.rotary->only_if), "false",
                         fmt::format("must be true: else {} has no rotary embedding", type.class_name));
}

ModelLayers Noted(const Precision& precision, std::string_view note) {
  ModelLayers layers;
  layers.precision = precision;
  layers.notes.push_back({"RULES", ClassPath(), "the file is read as in diffusers 0.42"});
  if (!note.empty()) layers.notes.push_back({"POSITIONS", "", std::string(note)});
  return layers;
}

absl::StatusOr<ModelLayers> LayersOf(const ConfigObject& config, const DiffusersType& type, Wanted asked,
                                     const Limits& limits) {
  ModelLayers layers;
  POSENC_ASSIGN_OR_RETURN(const Wanted wanted, WantedOf(config, type, asked));
  if (wanted == Wanted::kRotaryOrBias && type.rotary) {
    POSENC_RETURN_IF_ERROR(CheckHasRotary(config, type));
    layers = Noted(type.rotary->precision, type.rotary->note);
    POSENC_RETURN_IF_ERROR(ReadDiffusersRotary(config, *type.rotary, limits, layers));
  } else if (wanted == Wanted::kGrid && type.grid) {
    constexpr std::string_view kScale = "interpolation_scale";
    if (asked == Wanted::kAny && type.grid->scale == GridScale::kGiven && config.Find(kScale) == nullptr) {
      layers = Noted(type.grid->precision, "");
      layers.notes.push_back({"NO_ENCODING", config.Path(kScale), "without it the class has no positional encoding"});
      return layers;
    }
    layers = Noted(type.grid->precision, type.grid->note);
    POSENC_ASSIGN_OR_RETURN(layers.grid, DiffusersGridOf(config, *type.grid));
  } else if (wanted == Wanted::kSinusoidal && type.sines) {
    layers = Noted(type.sines->precision, type.sines->note);
    POSENC_ASSIGN_OR_RETURN(layers.sinusoidal, DiffusersSinesOf(config, *type.sines));
  } else if (wanted == Wanted::kLearned && type.table) {
    layers = Noted(kF32Precision, type.table->note);
    POSENC_ASSIGN_OR_RETURN(layers.table, DiffusersTableOf(config, *type.table));
  } else {
    return HasOther(type);
  }
  return layers;
}

}  // namespace

absl::StatusOr<ModelLayers> ReadDiffusersModel(const ConfigObject& config, Wanted wanted, const Limits& limits) {
  POSENC_ASSIGN_OR_RETURN(const auto name, config.String(kClassName));
  if (!name) return InvalidArgument("MISSING", ClassPath(), "", "must be given, because the file has no model_type");
  for (const DiffusersType& type : DiffusersTypes()) {
    if (type.class_name == *name) return LayersOf(config, type, wanted, limits);
  }
  return InvalidArgument("UNSUPPORTED", ClassPath(), *name,
                         "must be a known class: else give the settings instead of the file");
}

std::vector<std::string_view> DiffusersClasses(bool selected) {
  std::vector<std::string_view> names;
  for (const DiffusersType& type : DiffusersTypes()) {
    if (type.selected() == selected) names.push_back(type.class_name);
  }
  return names;
}

}  // namespace posenc
