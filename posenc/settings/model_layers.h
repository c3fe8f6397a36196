// ModelSource is the file that the readers of config.json and GGUF get. ModelLayers is their result: it holds the
// settings of a group of layers, and names the file's fields that gave them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "posenc/settings/relative_settings.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Kind of encoding to read from a config.json. In a file of several parts, it selects the part that has this kind.
enum class Wanted {
  kAny,  // a rotary embedding or a bias; if no part has one, a score term, sines, or else a learned table
  kRotaryOrBias,
  kTerms,
  kLearned,
  kSinusoidal,
  kGrid,
};

struct ParsedConfig;  // the tree of a config.json

// A config.json or a GGUF, and the caller's choice of what to read from it.
struct ModelSource {
  std::string config_json;
  std::string gguf;  // at least the header and the frequency factors; replaces config_json unless it is empty
  std::string component;
  std::variant<std::monostate, std::string, uint32_t> layer;  // layer_type or layer_index; monostate: no choice
  std::optional<Pairing> input_pairing;
  std::optional<Pairing> output_pairing;
  Wanted wanted = Wanted::kRotaryOrBias;
  std::shared_ptr<const ParsedConfig> parsed = nullptr;  // config_json's, by Parse(); null: each reader parses it
};

// A score term whose weights come with the request. Their tensors are empty in the settings, but projections and norms
// that the model has are present. Sizes are the file's; 0: no size to check.
struct ModelTerms {
  RelativeMethod settings;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t rows = 0;         // rows of Shaw's and DeBERTa's table
  int64_t width = 0;        // width of DeBERTa's table; Transformer-XL's d_model
  bool has_values = false;  // also has a term for the values
  bool has_biases = true;   // Transformer-XL's u and v
};

// Shape of a learned table that comes with the request. Position p uses row p + offset.
struct ModelTable {
  int64_t offset = 0;
  int64_t rows = 0;
  int64_t width = 0;
  std::optional<TableResize> resize;  // how the model resizes it to a target that the request gives
  double resize_added = 0;            // above 0: scale_factor is (target + this) / source
};

// The place in the file that a setting comes from, for errors about it.
struct FileField {
  std::string setting;     // path within RotarySettings or BiasMethod, e.g. "rope_parameters.rope_theta"
  std::string path;        // "config_json.rotary_emb_base"
  std::string other = {};  // second field if the setting is computed from two
  // Follows the value if the setting is another number than the field's, e.g. " elements per axis". Errors about a part
  // of such a setting name the field.
  std::string words = {};
};

// A file may cause any number of notes, and they are copied for each of its layer types and parts. Of a part's, an
// answer has so many, and one that says so.
inline constexpr size_t kMostNotes = 64;
// Code of the note that q is multiplied as the model does it.
inline constexpr std::string_view kQueryScaleNote = "QUERY_SCALE";
// Code of the note on a file that the model's class loads, and fails on in its first forward.
inline constexpr std::string_view kCannotRun = "CANNOT_RUN";
inline void AddNote(Note note, std::vector<Note>& notes) {
  if (notes.size() > kMostNotes) return;
  if (notes.size() == kMostNotes) {
    note = {"MORE_NOTES", "",
            "the file causes more than " + std::to_string(kMostNotes) + " notes: the others are left out"};
  }
  notes.push_back(std::move(note));
}

// Settings that several layers share, or those of the model's input. At most one of rotary, bias, terms, table,
// sinusoidal and grid is set; none: no positional encoding.
struct ModelLayers {
  std::vector<uint32_t> layer_index;  // empty if the file does not give the number of layers
  std::string layer_type;             // empty if all layers are equal
  std::optional<RotarySettings> rotary;
  std::optional<decltype(BiasMethod::settings)> bias;  // Swin v2: without weights
  int64_t bias_heads = 0;                              // Swin v2 only: heads that the weights must have
  int64_t bias_table_rows = 0;  // T5 only: rows of the model's table if it has more than num_buckets, else 0
  // T5, Swin and BEiT: heads of the learned table, of each stage if the file gives a list; empty: it gives none. For
  // comparisons only.
  std::vector<double> bias_table_heads;
  std::optional<ModelTerms> terms;
  std::optional<ModelTable> table;
  std::optional<SinusoidalSettings> sinusoidal;
  std::optional<GridSettings> grid;  // height and width 0: images of any size; frames 0: any video
  Precision precision;               // the model class's default
  bool scales_softmax = false;       // ModelType::unrotated_dim
  // Factor of the softmax scale where the file gives it by other rules than the plan's. Absent: see scales_softmax.
  std::optional<double> softmax_scale_factor;
  // For explanations: the model's longest sequence, the file's field that gives it, and the sliding window of the
  // layers.
  std::optional<double> longest;
  std::string_view longest_field = "max_position_embeddings";
  std::optional<double> window;
  // Width of a query's head of which only a part rotates, and the part's first element. 0: the head is not known.
  int64_t whole_head = 0;
  int64_t rotary_offset = 0;
  std::vector<FileField> fields;
  std::vector<Note> notes;
  std::string_view original;              // whose code the settings repeat: "transformers", "llama.cpp", ...
  std::string_view file = "config_json";  // the field of ModelConfig that gave the file: this, or "gguf"
};

}  // namespace posenc
