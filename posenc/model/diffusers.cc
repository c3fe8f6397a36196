#include "posenc/model/diffusers.h"

#include <fmt/format.h>

#include "posenc/model/diffusers_input.h"
#include "posenc/model/diffusers_rotary.h"
#include "posenc/model/diffusers_types.h"
#include "posenc/status.h"

namespace posenc {
namespace {

absl::StatusOr<bool> IsSet(const ConfigObject& config, std::string_view flag) {
  if (flag.empty()) return true;
  POSENC_ASSIGN_OR_RETURN(const auto set, config.Bool(flag));
  return set.value_or(false);
}

// The one that a class has, where the caller does not say which: the rotary embedding, unless the file has none.
absl::StatusOr<Wanted> WantedOf(const ConfigObject& config, const DiffusersType& type, Wanted wanted) {
  if (wanted != Wanted::kAny) return wanted;
  if (type.rotary) {
    POSENC_ASSIGN_OR_RETURN(const bool has_rotary, IsSet(config, type.rotary->only_if));
    if (has_rotary || !type.grid) return Wanted::kRotaryOrBias;
  }
  return type.grid ? Wanted::kGrid : type.sines ? Wanted::kSinusoidal : type.table ? Wanted::kLearned : wanted;
}

absl::Status HasOther(const DiffusersType& type) {
  if (!type.selected()) return InvalidArgument("UNSUPPORTED", kClassName, type.class_name, type.instead);
  std::string has;
  for (const auto& [is_there, what] : {std::pair{type.rotary.has_value(), "a rotary embedding: ApplyRotary"},
                                       {type.grid.has_value(), "sines of its grid: GenerateEmbedding.grid"},
                                       {type.sines.has_value(), "sines of positions: GenerateEmbedding.sinusoidal"},
                                       {type.table.has_value(), "a learned table: GenerateEmbedding.learned"}}) {
    if (is_there) has += (has.empty() ? "has " : "; and ") + std::string(what);
  }
  return InvalidArgument("UNSUPPORTED", kClassName, type.class_name, has);
}

absl::StatusOr<ModelLayers> RotaryLayers(const ConfigObject& config, const DiffusersType& type) {
  const DiffusersRotary& rotary = *type.rotary;
  POSENC_ASSIGN_OR_RETURN(const bool has_rotary, IsSet(config, rotary.only_if));
  if (!has_rotary) {
    return InvalidArgument("UNSUPPORTED", config.Path(rotary.only_if), "false",
                           fmt::format("{} has a rotary embedding only where this is true", type.class_name));
  }
  ModelLayers layers;
  layers.precision = rotary.precision;
  POSENC_ASSIGN_OR_RETURN(layers.rotary, DiffusersRotaryOf(config, rotary));
  layers.notes.push_back({"POSITIONS", "", std::string(rotary.note)});
  return layers;
}

absl::StatusOr<ModelLayers> GridLayers(const ConfigObject& config, const DiffusersGrid& grid) {
  ModelLayers layers;
  layers.precision = grid.precision;
  POSENC_ASSIGN_OR_RETURN(layers.grid, DiffusersGridOf(config, grid));
  layers.notes.push_back({"POSITIONS", "", std::string(grid.note)});
  return layers;
}

absl::StatusOr<ModelLayers> SinesLayers(const ConfigObject& config, const DiffusersSines& sines) {
  ModelLayers layers;
  layers.precision = sines.precision;
  POSENC_ASSIGN_OR_RETURN(layers.sinusoidal, DiffusersSinesOf(config, sines));
  layers.notes.push_back({"POSITIONS", "", std::string(sines.note)});
  return layers;
}

absl::StatusOr<ModelLayers> TableLayers(const ConfigObject& config, const DiffusersTable& table) {
  ModelLayers layers;
  layers.precision = kF32Precision;
  POSENC_ASSIGN_OR_RETURN(layers.table, DiffusersTableOf(config, table));
  if (!table.note.empty()) layers.notes.push_back({"POSITIONS", "", std::string(table.note)});
  return layers;
}

absl::StatusOr<ModelLayers> LayersOf(const ConfigObject& config, const DiffusersType& type, Wanted asked) {
  POSENC_ASSIGN_OR_RETURN(const Wanted wanted, WantedOf(config, type, asked));
  if (wanted == Wanted::kRotaryOrBias && type.rotary) return RotaryLayers(config, type);
  if (wanted == Wanted::kGrid && type.grid) return GridLayers(config, *type.grid);
  if (wanted == Wanted::kSinusoidal && type.sines) return SinesLayers(config, *type.sines);
  if (wanted == Wanted::kLearned && type.table) return TableLayers(config, *type.table);
  return HasOther(type);
}

}  // namespace

absl::StatusOr<ModelLayers> ReadDiffusersModel(const ConfigObject& config, Wanted wanted) {
  POSENC_ASSIGN_OR_RETURN(const auto name, config.String(kClassName));
  if (!name) return InvalidArgument("MISSING", kClassName, "", "and model_type: one of them says what the file is of");
  for (const DiffusersType& type : DiffusersTypes()) {
    if (type.class_name != *name) continue;
    POSENC_ASSIGN_OR_RETURN(ModelLayers layers, LayersOf(config, type, wanted));
    layers.notes.insert(layers.notes.begin(), {"RULES", std::string(kClassName), "read as diffusers 0.42 does"});
    return layers;
  }
  return InvalidArgument("UNSUPPORTED", kClassName, *name, "is not known: give the settings themselves instead");
}

std::vector<std::string_view> DiffusersClasses(bool selected) {
  std::vector<std::string_view> names;
  for (const DiffusersType& type : DiffusersTypes()) {
    if (type.selected() == selected) names.push_back(type.class_name);
  }
  return names;
}

}  // namespace posenc
