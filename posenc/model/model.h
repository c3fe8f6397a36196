// From a model's config.json to the settings of each of its layers, as transformers reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/settings/relative_settings.h"
#include "posenc/settings/settings.h"

namespace posenc {

// What a config.json is asked for. A file of several parts is asked for the part that has it.
enum class Wanted {
  kAny,  // a rotary embedding or a bias; where no part has one, a term, sines, or else a learned table
  kRotaryOrBias,
  kTerms,
  kLearned,
  kSinusoidal,
  kGrid,
};

// What a caller says of a config.json.
struct ModelSource {
  std::string config_json;
  std::string component;
  std::variant<std::monostate, std::string, uint32_t> layer;  // layer_type or layer_index
  std::optional<Pairing> input_pairing;
  std::optional<Pairing> output_pairing;
  Wanted wanted = Wanted::kRotaryOrBias;
};

// A term of the scores whose weights come with the request: their tensors are empty in the settings, but projections
// and norms that the model has are there. Sizes are the file's; 0: there is none to check.
struct ModelTerms {
  RelativeMethod settings;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t rows = 0;         // of Shaw's and DeBERTa's table
  int64_t width = 0;        // of DeBERTa's table, and Transformer-XL's d_model
  bool has_values = false;  // a term of the values, too
  bool has_biases = true;   // Transformer-XL's u and v
};

// A learned table, which comes with the request.
struct ModelTable {
  int64_t offset = 0;
  int64_t rows = 0;
  int64_t width = 0;
};

// Layers that share their settings, or the input of all. At most one of rotary, bias, terms, table, sinusoidal and grid
// is there; none: no positional encoding.
struct ModelLayers {
  std::vector<uint32_t> layer_index;  // empty where the file does not say how many layers there are
  std::string layer_type;             // empty where all layers are the same
  std::optional<RotarySettings> rotary;
  std::optional<decltype(BiasMethod::settings)> bias;  // Swin v2's without weights
  int64_t bias_heads = 0;                              // Swin v2's; 0: as the weights say
  std::optional<ModelTerms> terms;
  std::optional<ModelTable> table;
  std::optional<SinusoidalSettings> sinusoidal;
  std::optional<GridSettings> grid;  // height and width 0: of any image; frames 0: of any video
  Precision precision;               // the model class's own
  bool scales_softmax = false;       // see ModelType
  std::vector<Note> notes;
};

// All of a model's settings, by layer type. INVALID_ARGUMENT naming the field of the file that is missing, unknown, out
// of range or in conflict with another.
absl::StatusOr<std::vector<ModelLayers>> ReadModel(const ModelSource& source, const Limits& limits);

// The one that the source's layer selects; where none is chosen and there are several, INVALID_ARGUMENT lists them.
absl::StatusOr<ModelLayers> SelectLayer(const ModelSource& source, const Limits& limits);

}  // namespace posenc
