// config.json files of diffusers' transformers, which say _class_name where others say model_type.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/model/config_json.h"
#include "posenc/model/model.h"

namespace posenc {

inline constexpr std::string_view kClassName = "_class_name";

// What that class has of what is wanted. INVALID_ARGUMENT naming _class_name, or a field that is missing, of the wrong
// type, out of range, or that says there is none.
absl::StatusOr<ModelLayers> ReadDiffusersModel(const ConfigObject& config, Wanted wanted, const Limits& limits);

// Names of the classes that are known: those that a file selects, or those that no settings can say.
std::vector<std::string_view> DiffusersClasses(bool selected);

}  // namespace posenc
