// Reader for config.json files of diffusers' transformers, which have _class_name instead of model_type.
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

// Reads the `wanted` kind of encoding. INVALID_ARGUMENT names _class_name, or a field that is missing, of the wrong
// type, out of range, or that switches the encoding off.
absl::StatusOr<ModelLayers> ReadDiffusersModel(const ConfigObject& config, Wanted wanted, const Limits& limits);

// Names of the known classes: those with an encoding that a file selects, or those that no settings can express.
std::vector<std::string_view> DiffusersClasses(bool selected);

// Fields of a diffusers file: numbers, widths given by one field or two, and nulls with a meaning.

// INVALID_ARGUMENT (MISSING) for a field without which the class has no positions.
absl::Status Missing(const ConfigObject& config, std::string_view field);

// Width of one head, in elements: the first field, divided by the second if there is one. INVALID_ARGUMENT names a
// field outside 1 .. 2^20, or a width that the heads do not divide.
absl::StatusOr<int64_t> HeadWidth(const ConfigObject& config, const FieldWidth& width);

// Width of all heads together, in elements: the product of the two fields.
absl::StatusOr<int64_t> ModelWidth(const ConfigObject& config, const FieldWidth& width);

// True if the field is present and null (Python None). An absent field has the class's default instead.
bool IsNull(const ConfigObject& config, std::string_view field);

// Returns the field's value, or `default_value` if absent. OUT_OF_RANGE unless 1 .. 2^20; MISSING if absent and
// `default_value` is 0.
absl::StatusOr<int64_t> PositiveField(const ConfigObject& config, std::string_view field, int64_t default_value);

// Encodings that a diffusers class adds to its input: sines of a grid's cells or of frames, or a learned table.

// Returns INVALID_ARGUMENT naming a field that is missing, of the wrong type or out of range, or that switches it off.
absl::StatusOr<GridSettings> DiffusersGridOf(const ConfigObject& config, const DiffusersGrid& grid);
absl::StatusOr<SinusoidalSettings> DiffusersSinesOf(const ConfigObject& config, const DiffusersSines& sines);
absl::StatusOr<ModelTable> DiffusersTableOf(const ConfigObject& config, const DiffusersTable& table);

// Rotary embedding of a diffusers class.

// Sets layers.rotary, and appends its notes and fields. Returns INVALID_ARGUMENT naming a field that is missing, of the
// wrong type or out of range.
absl::Status ReadDiffusersRotary(const ConfigObject& config, const DiffusersRotary& rotary, const Limits& limits,
                                 ModelLayers& layers);

}  // namespace posenc
