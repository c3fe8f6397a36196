// The parts of a config.json - the whole file, its text_config, vision_config, ... - and one part while it is being
// read.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/status.h"
#include "posenc/model/config_json.h"
#include "posenc/model/model.h"
#include "posenc/model/model_types.h"
#include "posenc/settings/settings.h"

namespace posenc {

inline constexpr int64_t kMaxLayers = 100000;

struct Component {
  std::string name;  // "text", "vision", "thinker.text", ...
  ConfigObject config;
  std::string model_type;  // from the file, or implied by its composite type
  const ModelType* type;   // null: unknown model_type
  bool nested;             // an object of the file, not the whole file
};

// Returns the row's name for a file with this model_type, "": none: Mistral's params.json has none, and files of Grok 2
// and of Bailing's second class have that of another class.
std::string NameFor(const ConfigObject& config, std::string model_type);

// True if the file's architectures name the class.
bool NamesClass(const ConfigObject& config, std::string_view name);

// Returns the names of the parts that may have `wanted`.
absl::StatusOr<std::vector<std::string>> ComponentNames(const nlohmann::json& file, Wanted wanted);

// Returns the part called `name`, or, if `name` is empty, the only part that may have `wanted`. A part of unknown type
// may have kRotaryOrBias. INVALID_ARGUMENT if none fits or several do. The result refers to `file`.
absl::StatusOr<Component> SelectComponent(const nlohmann::json& file, const std::string& name, Wanted wanted);

struct Part {
  ConfigObject config;
  ModelType type;  // for an unknown model_type: Llama-like, with the caller's pairing
  bool known;
  std::string name;  // Component::name
  std::vector<Note> notes;
  std::vector<FileField> fields;
  int64_t whole_head = 0, rotary_offset = 0, bias_table_rows = 0;  // as in ModelLayers
  // Set if the layers being read have their own.
  std::optional<int64_t> layer_head_dim, layer_unrotated_dim;
  bool keeps_softmax = false;  // mscale_all_dim does not multiply the softmax scale

  // `field`: a name in this part, a path from config_json on, "" or a field of the request.
  void Say(std::string code, std::string field, std::string message) {
    const bool is_name = !field.empty() && !field.starts_with(kConfigJson) && field != "layer_type" &&
                         field != "component" && field != "input_pairing";
    AddNote({std::move(code), is_name ? config.Path(field) : std::move(field), std::move(message)}, notes);
  }
  // Says that a setting comes from this field of the file.
  void Comes(std::string setting, std::string path, std::string other = {}, std::string words = {}) {
    fields.push_back({std::move(setting), std::move(path), std::move(other), std::move(words)});
  }
  // Adds the type's note, if it has one.
  void SayNote() {
    if (!type.note.empty()) Say("POSITIONS", "model_type", std::string(type.note));
  }

  // INVALID_ARGUMENT (UNSUPPORTED) that names the scheme that the type has instead of the requested one.
  absl::Status HasOther() const {
    return InvalidArgument("UNSUPPORTED", config.Path("model_type"), type.name,
                           fmt::format("must have what the call needs: it has {}{}", SchemeName(type.scheme),
                                       type.learned ? ", and a learned table" : ""));
  }
};

}  // namespace posenc
