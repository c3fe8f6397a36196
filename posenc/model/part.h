// One part of a config.json while it is being read: the whole file, its text_config, ...
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/model/config_json.h"
#include "posenc/model/model_types.h"
#include "posenc/settings/settings.h"

namespace posenc {

struct Part {
  ConfigObject config;
  ModelType type;  // for an unknown model_type: Llama-like, with the caller's pairing
  bool known;
  std::string name;  // Component::name
  std::vector<Note> notes;
  std::optional<int64_t> layer_head_dim;  // set if the layers being read have their own

  void Say(std::string code, std::string field, std::string message) {
    notes.push_back({std::move(code), std::move(field), std::move(message)});
  }
  // Adds the type's note, if it has one.
  void SayNote() {
    if (!type.note.empty()) Say("POSITIONS", "model_type", std::string(type.note));
  }

  // INVALID_ARGUMENT (UNSUPPORTED) that names the scheme that the type has instead of the requested one.
  absl::Status HasOther() const {
    return InvalidArgument("UNSUPPORTED", config.Path("model_type"), type.name,
                           fmt::format("has {}", SchemeName(type.scheme)));
  }
};

}  // namespace posenc
