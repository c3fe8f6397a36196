// Selects the part of a file with its own positional encoding: a composite model's text_config, vision_config, ...
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "posenc/model/config_json.h"
#include "posenc/model/model.h"
#include "posenc/model/model_types.h"

namespace posenc {

struct Component {
  std::string name;  // "text", "vision", "thinker.text", ...
  ConfigObject config;
  std::string model_type;  // from the file, or implied by its composite type
  const ModelType* type;   // null: unknown model_type
  bool nested;             // an object of the file, not the whole file
};

// Returns the part called `name`, or, if `name` is empty, the only part that may have `wanted`. A part of unknown type
// may have kRotaryOrBias. INVALID_ARGUMENT if none fits or several do. The result refers to `file`.
absl::StatusOr<Component> SelectComponent(const nlohmann::json& file, const std::string& name, Wanted wanted);

}  // namespace posenc
