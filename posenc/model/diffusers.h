// config.json files of diffusers' transformers, which say _class_name where others say model_type.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/model/config_json.h"
#include "posenc/model/diffusers_types.h"
#include "posenc/model/model.h"
#include "posenc/settings/settings.h"

namespace posenc {

inline constexpr std::string_view kClassName = "_class_name";

// What that class has of what is wanted. INVALID_ARGUMENT naming _class_name, or a field that is missing, of the wrong
// type, out of range, or that says there is none.
absl::StatusOr<ModelLayers> ReadDiffusersModel(const ConfigObject& config, Wanted wanted, const Limits& limits);

// Names of the classes that are known: those that a file selects, or those that no settings can say.
std::vector<std::string_view> DiffusersClasses(bool selected);

// Fields of a diffusers file: numbers, widths that one of them says or two, and nulls that say something.

// What is said of a field without which there is nothing to compute.
absl::Status Missing(const ConfigObject& config, std::string_view field);

// Of one head: the first field, divided by the second where there is one. INVALID_ARGUMENT naming a field that is below
// 1, or a width that the heads do not divide.
absl::StatusOr<int64_t> HeadWidth(const ConfigObject& config, const FieldWidth& width);

// Of all heads together: the product.
absl::StatusOr<int64_t> ModelWidth(const ConfigObject& config, const FieldWidth& width);

// null, which is the class's None; an absent field is its default.
bool IsNull(const ConfigObject& config, std::string_view field);

// A whole number of at least 1: the field's, else `own`. MISSING: neither is there.
absl::StatusOr<int64_t> PositiveField(const ConfigObject& config, std::string_view field, int64_t own);

// What a diffusers class adds to its input: sines of a grid's cells or of frames, or a learned table.

// INVALID_ARGUMENT naming a field that is missing, of the wrong type or out of range, or that says there are none.
absl::StatusOr<GridSettings> DiffusersGridOf(const ConfigObject& config, const DiffusersGrid& grid);
absl::StatusOr<SinusoidalSettings> DiffusersSinesOf(const ConfigObject& config, const DiffusersSines& sines);
absl::StatusOr<ModelTable> DiffusersTableOf(const ConfigObject& config, const DiffusersTable& table);

// The rotary embedding of a diffusers class.

// INVALID_ARGUMENT naming a field that is missing, of the wrong type or out of range.
absl::StatusOr<RotarySettings> DiffusersRotaryOf(const ConfigObject& config, const DiffusersRotary& rotary,
                                                 const Limits& limits);

}  // namespace posenc
