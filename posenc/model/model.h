// From a model's config.json to the settings of each of its layers, as transformers reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/limits.h"
#include "posenc/spec.h"

namespace posenc {

// What a caller says of a config.json.
struct ModelSource {
  std::string config_json;
  std::string component;
  std::variant<std::monostate, std::string, uint32_t> layer;  // layer_type or layer_index
  std::optional<Pairing> input_pairing;
  std::optional<Pairing> output_pairing;
};

// Layers that share their settings. At most one of rotary and bias is there; neither: no positional encoding.
struct ModelLayers {
  std::vector<uint32_t> layer_index;  // empty where the file does not say how many layers there are
  std::string layer_type;             // empty where all layers are the same
  std::optional<RotarySettings> rotary;
  std::optional<decltype(BiasMethod::settings)> bias;
  Precision precision;          // the model class's own
  bool scales_softmax = false;  // see ModelType
  std::vector<Note> notes;
};

// All of a model's settings, by layer type. INVALID_ARGUMENT naming the field of the file that is missing, unknown, out
// of range or in conflict with another.
absl::StatusOr<std::vector<ModelLayers>> ReadModel(const ModelSource& source, const Limits& limits);

// The one that the source's layer selects; where none is chosen and there are several, INVALID_ARGUMENT lists them.
absl::StatusOr<ModelLayers> SelectLayer(const ModelSource& source, const Limits& limits);

}  // namespace posenc
