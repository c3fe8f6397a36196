// What transformers' model classes decide where a config.json is silent: one row a model_type.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/settings/settings.h"

namespace posenc {

// What the model's attention has for positions.
enum class Scheme {
  kRotary,  // of one axis, or of several as mrope_section says
  kAxial,   // rotary, an equal share of the head for each axis
  kBloomAlibi,
  kMptAlibi,
  kFalcon,  // ALiBi where the file says alibi, else rotary
  kT5,      // buckets
  kSwin,    // a bias in windows
  kSwinV2,  // the same, of a network
  kBeit,    // the same, with a cls token
  kParts,   // nothing of its own: parts have
  // What is no rotary embedding or bias that a config.json selects. Of those with terms or a learned table it selects
  // these (ModelType); of the others SchemeName says where else they are, if anywhere.
  kTerms,
  kLearned,
  kSinusoidal,
  kRelativeTerms,
  kWindowBias,
  kOwnRotary,
  kNone,
};

// The scheme in words, for errors.
std::string_view SchemeName(Scheme scheme);
// Whether settings of ours for a rotary embedding or a bias can say it.
bool IsSelected(Scheme scheme);

// Whose term of the scores a model type has, besides or in place of its scheme: the settings of RelativeScores.
enum class Terms {
  kNone,
  kGraniteSpeech,
  kVits,
  kDeberta,
  kDebertaV2,
  kXlnet,
  kTransformerXl,
  kConformer,  // wav2vec2-conformer's
  kGemmaAudio,
  kConformerByType,  // the same, or Shaw's, where position_embeddings_type says so
  kBert,             // Shaw's, where position_embedding_type says so
  kNezha,
  kSpeechT5,
};

// Where the rows of a learned table begin.
enum class TableStart {
  kZero,
  kAfterPadding,  // the token at position p has row p + pad_token_id + 1 (RoBERTa)
  kTwo,           // row p + 2, of two rows more than there are positions (OPT)
};

// Of what a learned table's rows are.
enum class TableOf {
  kPositions,
  kImage,        // patches of image_size and patch_size
  kVideo,        // tubelets of num_frames and image_size
  kSpectrogram,  // patches of num_mel_bins and max_length, which overlap
};

// A learned table of absolute positions: the class's own numbers, where a file leaves them out, and the fields that say
// them.
struct LearnedTable {
  int64_t positions = 0;
  int64_t width = 0;
  TableStart start = TableStart::kZero;
  std::string_view width_field = "hidden_size";
  std::string_view positions_field = "max_position_embeddings";
  int64_t padding = 1;        // kAfterPadding: pad_token_id
  bool reads_padding = true;  // from the file
  TableOf of = TableOf::kPositions;
  int64_t image_size = 0, patch_size = 0;
  int64_t image_width = 0;  // 0: as image_size
  std::string_view image_field = "image_size";
  // Rows for tokens that are no patches, and the field that says how many follow them.
  int64_t tokens_before = 0, tokens_after = 0;
  std::string_view tokens_after_field = "";
  std::string_view only_if = "";  // a flag that must be true
};

// Sines and cosines of positions, added to the input: the class's own width, and the field that says it.
struct SineTable {
  SinusoidalConvention convention;
  int64_t width = 0;
  std::string_view width_field = "d_model";
  std::string_view times_field = "";  // multiplies the width
  int64_t times = 1;
  std::string_view max_timescale_field = "";
  std::string_view one_field = "";  // must be 1
  std::string_view only_if = "";    // a flag that must be true
  int64_t padding = 1;              // kFairseq: pad_token_id
  bool cosines_first = false;
  bool by_width = false;  // max_timescale 10000^((D - 2) / D) and a scale of D^-0.5
};

// The same of the cells of an image.
struct SineGrid {
  GridConvention convention = GridConvention::kMae;
  int64_t width = 0;
  std::string_view width_field = "hidden_size";
  double temperature = 10000;
  std::vector<std::string_view> temperature_fields = {};
  bool rows_first = false;
  double offset = 0;
  std::string_view scale_field = "";
  std::string_view only_if = "";  // what position_embedding_type must be
  // Of images of one size: image_size and patch_size, after so many rows of zeros.
  int64_t image_size = 0, patch_size = 0, tokens_before = 0;
};

// How the layers differ. Layers without attention (layer_types linear_attention, conv, mamba) never have any.
enum class Layers {
  kUniform,
  kByType,               // a block each, as the file says; by_layer where it has none
  kByTypeFilled,         // the same, and what is missing of a block, or null, is as by_layer says
  kSlidingOnly,          // full_attention layers have no rotary embedding
  kSlidingOnlyIfWindow,  // the same, unless sliding_window is null: then all have
  kNoRopeList,           // no_rope_layers: 1 means rope
  kThetaList,            // layer_rope_theta: one a layer, 0 means none; else, by the pattern, every n-th from the last
};

// The types of layers where the file does not list them: every n-th is full_attention.
struct LayerPattern {
  int64_t every = 0;                                  // 0: the file must say
  std::string_view field = "sliding_window_pattern";  // where the file may say n
  std::string_view others = "sliding_attention";
  bool last = false;  // the last layer is full_attention too
};

// A class's own block for one type of layers.
struct LayerDefaults {
  std::string_view layer_type;
  double rope_theta = 10000;
  std::string_view theta_field = "";  // outside the block; "": none
  bool takes_rope_scaling = false;    // the file's rope_scaling is for these layers
  std::string_view rope_type = "default";
  std::optional<double> partial;
  std::string_view head_dim_field = "";  // "": as the other layers
  int64_t head_dim = 0;
};

// The width that turns, where it is not hidden_size / num_attention_heads: that, divided by a field and a number.
struct HeadShare {
  std::string_view divisor_field = "";
  int64_t divisor = 1;
  int64_t least = 0;
};

// The class's own hidden_size and num_attention_heads; only of parts, from whose files transformers leaves them out.
struct Width {
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
};

// A part of a composite file: where it is, and what it is where it has no model_type.
struct PartType {
  std::string_view field;
  std::string_view model_type;
};

// T5's buckets in one stack.
struct OneStack {
  bool bidirectional = true;
  bool scales_scores = false;  // by 1/sqrt(head_dim)
  // The class's own, and the fields that say them; "": none.
  int64_t num_buckets = 32, max_distance = 128;
  std::string_view buckets_field = "relative_attention_num_buckets";
  std::string_view distance_field = "relative_attention_max_distance";
};

// A field that must have this value ("true" for a flag).
struct Condition {
  std::string_view field;
  std::string_view value;
  bool if_absent = false;  // a file that does not say means it
};

struct ModelType {
  std::string_view name;
  Scheme scheme = Scheme::kRotary;
  Pairing pairing = Pairing::kHalfSplit;
  std::optional<Pairing> leaves;            // another pairing, in which q and k leave
  bool reads_interleave = false;            // rope_interleave false: q and k come half-split
  Precision precision = kHfEagerPrecision;  // PRECISION_PRESET_MODEL

  double theta = 10000;
  std::string_view theta_field = "rope_theta";  // outside the block, the only name by which the class knows it
  // The class's own partial_rotary_factor. Absent: it is not read where rope_type is "default".
  std::optional<double> partial;
  std::string_view partial_field = "partial_rotary_factor";
  // The class's own original_max_position_embeddings, which counts as one that stands outside the block. 0: none.
  double original_length = 0;
  std::optional<RopeParameters> block;  // the class's own, where the file has none
  bool negate_angle = false;

  // The width of a head: this field, this number, or hidden_size / num_attention_heads.
  std::string_view head_dim_field = "head_dim";
  int64_t head_dim = 0;
  std::string_view hidden_size_field = "hidden_size";
  Width width;
  HeadShare share;
  // Multi-head latent attention: the width is qk_rope_head_dim, a part of the head of its own, and the softmax scale is
  // multiplied by m(s, mscale_all_dim)^2.
  bool mla = false;

  Layers layers = Layers::kUniform;
  LayerPattern pattern;
  std::vector<LayerDefaults> by_layer;

  MropeOrder mrope = MropeOrder::kNone;
  std::vector<int64_t> sections;  // the class's own mrope_section; kErnie without: h and w share all pairs
  int64_t axes = 2;               // kAxial
  bool alternating = false;       // kAxial: the axes take turns
  bool own_halves = false;        // kAxial: half-split pairing is of each axis's own elements
  int64_t window = 7;             // kSwin: the class's own window_size
  // kT5: a file of one stack, not of two.
  std::optional<OneStack> one_stack;
  std::string_view encoder_biases_field = "";  // kT5: a list, of which one is of the tokens' distance, as T5 has it
  double second_start = 0;                     // kAxial: frequency_start of the second axis
  // A field of the scaling block that the class reads for something else: it multiplies its queries by
  // 1 + field * ln(1 + floor(position / L0)).
  std::string_view query_scale_field = "";
  Condition only_if;           // else there is no rotary embedding
  std::string_view note = "";  // what a caller must know of the positions or the tensors

  Terms terms = Terms::kNone;
  std::string_view position_type = "";  // kConformerByType: the class's own position_embeddings_type
  std::optional<LearnedTable> learned;
  std::optional<SineTable> sines;
  std::optional<SineGrid> grid;

  std::vector<PartType> parts;
  bool flat_text = false;  // a file without text_config is itself the text part
};

// A file of several models' parts.
inline ModelType Composite(std::string_view name, std::vector<PartType> parts, bool flat_text = false) {
  return {.name = name, .scheme = Scheme::kParts, .parts = std::move(parts), .flat_text = flat_text};
}

// With what a caller must know.
inline ModelType Noted(ModelType type, std::string_view note) {
  type.note = note;
  return type;
}

// Those of which a config.json selects a rotary embedding or a bias, or parts; those of which it selects a term
// (weighted_types.cc) or a table (learned_types.cc) alone, as their weights come with the request; those of which it
// selects sines of the input's positions (sine_types.cc); and those of which it selects nothing (other_types.cc).
const std::vector<ModelType>& ModelTypes();
const std::vector<ModelType>& WeightedTypes();
const std::vector<ModelType>& LearnedTypes();
const std::vector<ModelType>& SineTypes();
const std::vector<ModelType>& OtherTypes();

// All of these.
std::vector<const ModelType*> AllModelTypes();

// The row of that name, or null.
const ModelType* FindModelType(std::string_view model_type);

}  // namespace posenc
