// What a config.json tells beside its own fields: which known class its own code derives from, and which of its objects
// no reader reads.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "posenc/model/part.h"

namespace posenc {

struct Recognized {
  const ModelType* type;
  std::string class_name;  // as the file names it
};

// Returns the model type of the class that a file of unknown model_type names: in auto_map, or in architectures if
// there is no auto_map. "configuration_deepseek.DeepseekV3Config" is deepseek_v3. nullopt if no known class is named.
std::optional<Recognized> RecognizedType(const ConfigObject& part, const nlohmann::json& file);

// Adds a note for each object of the file that describes another part of the model or other distances, and is not read.
void NoteUnreadParts(const nlohmann::json& file, Part& part);

// Adds a note for each field of a rotary embedding in a file whose layers have ALiBi.
void NoteUnreadRotary(Part& part);

}  // namespace posenc
