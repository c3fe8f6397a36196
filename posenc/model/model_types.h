// Defaults of transformers' model classes for fields that a config.json leaves out: one row per model_type, in the
// files *_types.cc.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/settings/settings.h"

namespace posenc {

// Positional encoding of the model's attention.
enum class Scheme {
  kRotary,  // one axis, or several by mrope_section
  kAxial,   // rotary, with an equal share of the head per axis
  kBloomAlibi,
  kMptAlibi,
  kFalcon,  // ALiBi if the file's `alibi` is true, else rotary
  kT5,      // a bias by bucketed distance
  kSwin,    // a bias within windows
  kSwinV2,  // a bias within windows, computed by a small network
  kBeit,    // a bias over all patches and a cls token
  kParts,   // composite file: only its parts have encodings
  // Schemes without a rotary embedding or bias that a config.json selects. It selects their score terms, tables and
  // sines if ModelType has them; for the others, SchemeName names the API to use instead, if any.
  kTerms,
  kLearned,
  kSinusoidal,
  kRelativeTerms,
  kWindowBias,
  kLearnedFrequencies,
  kNone,
};

// The scheme in words, for errors.
std::string_view SchemeName(Scheme scheme);
// True if RotarySettings or bias settings can express the scheme.
bool IsSelected(Scheme scheme);

// Score term of a model type, in addition to or instead of its scheme. Selects the settings of RelativeScores.
enum class Terms {
  kNone,
  kGraniteSpeech,
  kVits,
  kDeberta,
  kDebertaV2,
  kSewD,  // DeBERTa v2's, which the class has by default
  kXlnet,
  kTransformerXl,
  kConformer,  // wav2vec2-conformer's term
  kGemmaAudio,
  kNamedConformer,   // kConformer's, which position_embeddings_type must name or leave out
  kNamedShaw,        // likewise Shaw's
  kShawOrConformer,  // by position_embeddings_type, by default Shaw's
  kBert,             // Shaw's, by position_embedding_type
  kNezha,
  kSpeechT5,
  kInkling1,
  kInkling2,
  kInkling2Loop,
};

// Row of a learned table for position 0.
enum class TableStart {
  kZero,
  kAfterPadding,  // position p has row p + pad_token_id + 1 (RoBERTa)
  kTwo,           // position p has row p + 2; the table has two extra rows (OPT)
};

// Items that a learned table has rows for.
enum class TableOf {
  kPositions,
  kImage,        // patches of image_size and patch_size
  kVideo,        // tubelets of num_frames and image_size
  kSpectrogram,  // overlapping patches of num_mel_bins and max_length
  kGrid,         // cells of a grid whose sides two fields give
};

// How a class resizes its table to the grid of its input.
struct ResizeRule {
  ResizeMode mode = ResizeMode::kBicubic;
  bool align_corners = false;
  bool antialias = false;
  ResizeOperations operations = ResizeOperations::kInterpolate;
  // The class calls interpolate(scale_factor=(target + added) / source), not interpolate(size=target).
  double added = 0;
  std::string_view mode_field = "";  // gives the mode, if the file has it
  int64_t block = 0;                 // default of spatial_merge_size: cells are in blocks of it; 0: row by row
  bool on_request = false;           // only with interpolate_pos_encoding=True
};

// A learned table of absolute positions: the class's defaults for numbers that a file leaves out, and the fields that
// give them.
struct LearnedTable {
  int64_t positions = 0;
  int64_t width = 0;
  TableStart start = TableStart::kZero;
  std::string_view width_field = "hidden_size";
  std::string_view positions_field = "max_position_embeddings";
  int64_t padding = 1;        // kAfterPadding: pad_token_id
  bool reads_padding = true;  // false: the class ignores the file's pad_token_id
  TableOf of = TableOf::kPositions;
  int64_t image_size = 0, patch_size = 0;
  int64_t image_width = 0;  // 0: equal to image_size
  std::string_view image_field = "image_size";
  std::string_view grid_fields[2] = {"", ""};  // kGrid: rows and columns, by default `positions` each
  // Rows for tokens other than patches, and the fields that give their numbers.
  int64_t tokens_before = 0, tokens_after = 0;
  std::string_view tokens_before_field = "", tokens_after_field = "";
  std::string_view only_if = "";  // a flag that must not be false
  std::optional<ResizeRule> resize = {};
  std::string_view note = "";  // advice to callers, beside the type's own
};

// Sines and cosines of positions, added to the input: the class's default width, and the field that gives it.
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
  bool by_width = false;  // for a width of D, max_timescale is 10000^((D - 2) / D) and scale D^-0.5
};

// Sines and cosines of the cells of an image, added to the input.
struct SineGrid {
  GridConvention convention = GridConvention::kMae;
  int64_t width = 0;
  std::string_view width_field = "hidden_size";
  double temperature = 10000;
  std::vector<std::string_view> temperature_fields = {};
  bool rows_first = false;
  double offset = 0;
  std::string_view scale_field = "";
  std::string_view only_if = "";  // required position_embedding_type; "": any
  // For images of one size: image_size, patch_size, and the rows of zeros before the patches. 0: images of any size.
  int64_t image_size = 0, patch_size = 0, tokens_before = 0;
};

// How the layers' rotary embeddings differ. Layers without attention (HasAttention) have none, nor have those of type
// kNoRope.
enum class Layers {
  kUniform,
  kByType,               // one block per layer type; by_layer if the file has no block
  kByTypeFilled,         // kByType, and by_layer fills missing or null blocks, and partial
  kSlidingOnly,          // full_attention layers have no rotary embedding
  kSlidingOnlyInWindow,  // kSlidingOnly, and no layer has one if sliding_window is null
  kSlidingOnlyIfWindow,  // kSlidingOnly, unless sliding_window is null: then all have one
};

// Layer types for a file that does not list them: every n-th layer has type `full`.
struct LayerPattern {
  int64_t every = 0;                                  // n; 0: no pattern
  std::string_view field = "sliding_window_pattern";  // field that gives n, if present
  std::string_view others = "sliding_attention";
  std::string_view full = "full_attention";
  bool last = false;                    // the last layer is `full`, too
  bool last_always = false;             // the last layer is `full`, even if the file lists another type
  int64_t at = -1;                      // layers at, at + n, ... are `full`; -1: n-1, 2n-1, ...
  int64_t first = 0;                    // the first layers are `full`, too
  std::string_view indices_field = "";  // lists the `full` layers instead
  bool ignores_list = false;            // the class does not read layer_types
  bool needs_full = false;              // the class refuses a list without `full` layers
  bool needs_others = false;            // the class refuses a list without other layers
  // In a list with mlp, each layer has two entries, its attention and its mlp, and num_hidden_layers counts both.
  bool lists_mlps = false;
  std::array<std::string_view, 3> only = {};  // the layer types that the class accepts in a list; empty: all
};

// A class's default block for one layer type.
struct LayerDefaults {
  std::string_view layer_type;
  double rope_theta = 10000;
  std::string_view theta_field = "";  // theta's name outside the block; "": none
  bool takes_rope_scaling = false;    // the file's rope_scaling applies to these layers
  std::string_view rope_type = "default";
  std::optional<double> partial;
  bool partial_of_default = false;       // a given block of rope_type "default" without a share has this one, too
  std::string_view head_dim_field = "";  // field with these layers' head width
  int64_t head_dim = 0;                  // 0: as in the other layers
};

// The class's default hidden_size and num_attention_heads. Used for nested parts only: transformers omits them there.
struct Width {
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
};

// A part of a composite file: its field, and its model_type if the part gives none.
struct PartType {
  std::string_view field;
  std::string_view model_type;
};

// T5 buckets for a file with one stack.
struct OneStack {
  bool bidirectional = true;
  bool scales_scores = false;  // the model scales q.k by 1/sqrt(head_dim)
  // The class's defaults, and the fields that give them; "": no field.
  int64_t num_buckets = 32, max_distance = 128;
  std::string_view buckets_field = "relative_attention_num_buckets";
  std::string_view distance_field = "relative_attention_max_distance";
  std::string_view rows_field = "";  // gives the rows of a table of which the class reads num_buckets
};

// Windows of a Swin class: its defaults.
struct SwinWindows {
  int64_t window_size = 7;
  int64_t image_size = 224, patch_size = 4;  // kSwinV2
  // kSwinV2: a stage has half of the resolution of the one before. Else all stages have the image's resolution, and the
  // class does not read pretrained_window_sizes.
  bool halves = true;
};

// How a vision class (kAxial) splits its heads among the axes.
struct HeadAxes {
  int64_t count = 2;
  bool alternating = false;    // pairs alternate between the axes
  bool own_halves = false;     // half-split pairing within each axis's elements
  int64_t width_multiple = 1;  // the width of a head that the class's tables fit
  double second_start = 0;     // frequency_start of the second axis
};

// A field that must have this value ("true" for a flag).
struct Condition {
  std::string_view field;
  std::string_view value;
  bool if_absent = false;  // an absent field satisfies the condition
};

struct LayerBlock;
struct Part;
struct RopeBlock;
using RopeBlocks = std::vector<std::pair<std::string, std::optional<RopeBlock>>>;
using LayerTypeNames = std::vector<std::string>;

// A row's fields say what many classes do. A rule is a function in the row's file that does what only its class does,
// or a family of a few. Null: the class does as the others.
struct ClassRules {
  // Adapts the row to a file, before anything else is read.
  absl::Status (*adapt)(Part&) = nullptr;
  // Returns the width of a head for a file without it, by default hidden_size / num_attention_heads.
  absl::StatusOr<int64_t> (*head_dim)(const Part&, int64_t hidden_size, int64_t num_attention_heads) = nullptr;
  // Adapts a scaling block, before fields outside it are read, and names fields that only this class's block has.
  absl::Status (*block)(Part&, RopeBlock&) = nullptr;
  std::vector<std::string_view> block_fields = {};
  // Returns the type of each layer, as LayerTypes(); all types, for a file without the number of layers.
  absl::StatusOr<LayerTypeNames> (*layer_types)(const Part&, int64_t layers) = nullptr;
  std::vector<std::string_view> all_layer_types = {};
  // Selects the block of a layer type, as BlockFor().
  absl::StatusOr<LayerBlock> (*layer_block)(Part&, const RopeBlocks&, const std::string& layer_type,
                                            const LayerTypeNames& of_layer) = nullptr;
  // Adapts the settings, after head_dim and Part::whole_head are set, and before a share of the head is applied.
  absl::Status (*settings)(Part&, RotarySettings&, RopeParameters&) = nullptr;
  std::vector<std::string_view> fields = {};  // fields that the rules read, and for which null counts as absent
};

// Where a class reads a scaling block.
enum class BlockIn { kEither, kRopeParameters, kNowhere };

// Origin of a row's facts: classes of this package, or code that is released beside the weights.
inline constexpr std::string_view kTransformers = "transformers", kReleasedCode = "the model's released code";

struct ModelType {
  std::string_view name;
  std::string_view original = kTransformers;
  Scheme scheme = Scheme::kRotary;
  Pairing pairing = Pairing::kHalfSplit;
  std::optional<Pairing> output_pairing;    // if it differs from `pairing`
  Precision precision = kHfEagerPrecision;  // PRECISION_PRESET_MODEL

  double theta = 10000;
  std::string_view theta_field = "rope_theta";  // theta's only name outside the block for this class
  // The class's default partial_rotary_factor. nullopt: the class does not read it for rope_type "default".
  std::optional<double> partial;
  std::string_view partial_field = "partial_rotary_factor";
  std::string_view rotary_dim_field = "";    // gives the share of a head that rotates as a number of elements
  std::optional<RopeParameters> block;       // the class's default block
  std::vector<std::string_view> rope_types;  // the only ones that the class accepts; empty: any
  BlockIn block_in = BlockIn::kEither;

  // Width of a head: this field, else this number unless 0, else hidden_size / num_attention_heads.
  std::string_view head_dim_field = "head_dim";
  int64_t head_dim = 0;
  std::string_view hidden_size_field = "hidden_size";
  std::string_view heads_field = "";  // the only name of the number of heads; "": any of the usual ones
  Width width;
  // Multi-head latent attention, with the class's default qk_nope_head_dim: head_dim is qk_rope_head_dim, a separate
  // part of the head, and the softmax scale is multiplied by m(s, mscale_all_dim)^2.
  std::optional<int64_t> unrotated_dim;
  bool cuts_head = false;  // the class cuts its heads at the rotated width, also for tables of the whole head

  Layers layers = Layers::kUniform;
  LayerPattern pattern;
  std::vector<LayerDefaults> by_layer;
  double block_theta = 0;  // theta of a layer type's block that gives none; 0: the default of the layer type

  MropeOrder mrope = MropeOrder::kNone;
  std::vector<int64_t> sections;  // default mrope_section; kErnie without: h and w share all pairs
  HeadAxes axes;                  // kAxial
  // The class multiplies its queries by a factor of the position. kLlama4, kBeam: on layers that do not rotate.
  std::optional<QueryScaleFunction> query_scale;
  Condition only_if;  // if not met, there is no rotary embedding
  ClassRules rules;

  SwinWindows windows;                // kSwin, kSwinV2
  std::optional<OneStack> one_stack;  // kT5: set if the file has one stack, not two
  Terms terms = Terms::kNone;
  std::optional<LearnedTable> learned;
  std::optional<SineTable> sines;
  std::optional<SineGrid> grid;

  std::string_view note = "";  // advice to callers on positions or tensors

  std::vector<PartType> parts;
  bool flat_text = false;  // a file without text_config is itself the text part
};

// Sets the type's note to callers.
inline ModelType Noted(ModelType type, std::string_view note) {
  type.note = note;
  return type;
}

// Sets how the type resizes its learned table.
inline ModelType Resized(ModelType type, const ResizeRule& rule) {
  type.learned->resize = rule;
  return type;
}

// Rows of model types, by what a config.json selects. The weights of score terms and learned tables come with the
// request.
const std::vector<ModelType>& RotaryTypes();        // a rotary embedding over one axis
const std::vector<ModelType>& LayeredTypes();       // one that differs between layers
const std::vector<ModelType>& LatentTypes();        // one of multi-head latent attention
const std::vector<ModelType>& RemoteCodeTypes();    // one of a class that transformers does not have
const std::vector<ModelType>& SeveralAxesTypes();   // a rotary embedding over several axes
const std::vector<ModelType>& BiasTypes();          // an attention bias
const std::vector<ModelType>& CompositeTypes();     // parts
const std::vector<ModelType>& ScoreTermTypes();     // a score term
const std::vector<ModelType>& LearnedTypes();       // a learned table of token positions
const std::vector<ModelType>& LearnedImageTypes();  // a learned table of an image's patches
const std::vector<ModelType>& SineTypes();          // sines, added to the input
const std::vector<ModelType>& UnselectedTypes();    // nothing

// Rows of all lists.
std::vector<const ModelType*> AllModelTypes();

// Returns the row with this name, or null.
const ModelType* FindModelType(std::string_view model_type);

}  // namespace posenc
