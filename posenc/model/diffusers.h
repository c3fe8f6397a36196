// config.json files of diffusers' transformers, which say _class_name where others say model_type.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/model/config_json.h"
#include "posenc/model/model.h"

namespace posenc {

inline constexpr std::string_view kClassName = "_class_name";

// The axial embedding of that class. INVALID_ARGUMENT naming _class_name, or a field that is of the wrong type.
absl::StatusOr<ModelLayers> ReadDiffusersModel(const ConfigObject& config);

// Names of the classes that are known: those that a file selects, or those that no settings can say.
std::vector<std::string_view> DiffusersClasses(bool selected);

}  // namespace posenc
