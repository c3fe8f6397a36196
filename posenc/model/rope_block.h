// The scaling block of a config.json, in its old (`rope_scaling`, `type`) and new (`rope_parameters`, `rope_type`)
// spelling.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/model/config_json.h"
#include "posenc/model/model_types.h"
#include "posenc/settings/settings.h"

namespace posenc {

struct RopeBlock {
  RopeParameters parameters;  // rope_type "default" where the block does not say
  bool has_factor = false;    // the key "factor" is there, be it null
  bool has_query_scale = false;
};

// The file's blocks: one for all layers (key ""), or one a layer type. Empty if there is none. A null block of a layer
// type is kept as nullopt: layers without rope.
using RopeBlocks = std::vector<std::pair<std::string, std::optional<RopeBlock>>>;

// INVALID_ARGUMENT naming the field: one that is unknown (never ignored), of the wrong type, or two spellings that
// disagree. Fields that only some classes know are known if `type` is one.
absl::StatusOr<RopeBlocks> ReadRopeBlocks(const ConfigObject& config, const ModelType& type);

}  // namespace posenc
