// The parts of a file that have positions of their own: a composite model's text_config, vision_config, ...
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
  std::string model_type;  // as the file says, or as its composite type implies
  const ModelType* type;   // null: not known
  bool nested;             // an object of the file, not the whole
};

// The part of that name; where none is named, the only one that may have what is wanted. Of an unknown type it may be a
// rotary embedding.
absl::StatusOr<Component> SelectComponent(const nlohmann::json& file, const std::string& name, Wanted wanted);

}  // namespace posenc
