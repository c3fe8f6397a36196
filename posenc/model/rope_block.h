// Reader for the scaling block of a config.json, in its old (`rope_scaling`, `type`) and new (`rope_parameters`,
// `rope_type`) spelling.
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
  std::string path;                            // "config_json.rope_scaling", or where the file would have the block
  std::string_view type_key = "rope_type";     // as the file spells it
  RopeParameters parameters;                   // rope_type is "default" if absent
  std::optional<ConfigObject> object;          // the block in the file, if it has one
  bool has_factor = false;                     // the key "factor" is present, even if null
  std::optional<double> llama_4_scaling_beta;  // of classes that read it
  bool null_attention_factor = false;
  std::vector<std::string> nulls;  // fields that are null, where transformers takes no null
  // Fields that lie beside the layer types' blocks. transformers reads truncate there, and there only.
  std::vector<std::string> beside;  // paths of the others
  std::optional<bool> truncate_beside;
  bool complete = false;  // theta and the rotated share are not read outside the block

  std::string Path(std::string_view name) const { return path + "." + std::string(name); }
  std::string TypePath() const { return Path(type_key); }
};

// Each layer type is read, listed and explained; models have up to three.
inline constexpr size_t kMaxLayerTypes = 16;

// Returns the file's blocks: one for all layers (key ""), or one per layer type, at most kMaxLayerTypes. Empty if the
// file has none. A null block of a layer type is nullopt: these layers have no rotary embedding. Fields beside the
// layer types' blocks are known, but not read. INVALID_ARGUMENT naming a field that is unknown (never ignored), has the
// wrong type, or whose two spellings disagree. Fields of some classes only are known if `type` is one of these classes.
absl::StatusOr<RopeBlocks> ReadRopeBlocks(const ConfigObject& config, const ModelType& type);

}  // namespace posenc
