// How llama.cpp encodes positions, by a GGUF's general.architecture: one row per architecture (gguf_types.cc). The
// facts are those of src/llama-model.cpp, src/llama-context.cpp and src/models/*.cpp in the llama.cpp of
// llama-cpp-python 0.3.36 (ggml 0.25.3).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace posenc {

// llama.cpp's rope types NORM, NEOX, MROPE and IMROPE. The last two pair half-split; "or sections": MROPE if
// rope.dimension_sections has positive first and second numbers.
enum class GgufPairs { kNorm, kNeox, kMrope, kImrope, kNormOrMrope, kNeoxOrMrope };

// Tensors that divide the frequencies.
enum class GgufDivisors {
  kNone,
  kFreqs,      // rope_freqs
  kLongShort,  // rope_factors_long and rope_factors_short
  kByType,     // kLongShort if rope.scaling.type is "longrope", else kFreqs
};

// Which layers rotate, of those with attention.
enum class GgufRotates {
  kAll,
  kSliding,             // the sliding layers; all if there are none
  kSlidingOrLeading,    // kSliding, and the first leading_dense_block_count layers
  kNotEveryFourth,      // all but layers 3, 7, ...
  kChunked,             // kNotEveryFourth; with sliding_window = 0 all but the last layer
  kNotFirstOfFour,      // all but layers 0, 4, ...; all if there are no sliding layers, or four layers
  kUnlessNotFinetuned,  // none if rope.scaling.finetuned is false
  kListed,              // those with a non-zero entry in attention.rope_pattern; all if it is absent
};

// Which layers have attention.
enum class GgufAttention {
  kAll,
  kWithHeads,    // a non-zero entry in attention.head_count
  kWithKvHeads,  // a non-zero entry in attention.head_count_kv
  kEveryFourth,  // every full_attention_interval-th layer (default 4), or 0 in attention.recurrent_layers
  kEveryEighth,  // likewise, default 8
};

struct GgufSliding {
  // kIfWindow: sliding_window > 0. kUncompressed: DeepSeek V4's layers with 0 in attention.compress_ratios.
  enum class When { kAlways, kIfWindow, kUnlessWindowIsZero, kIf64Layers, kUncompressed };
  enum class Theta { kOwn, kShared, kFull };  // rope.freq_base_swa, by default 10000 or freq_base; kFull: freq_base
  enum class Scaling { kFull, kNoFactor, kNone };  // kNoFactor: only the factor is 1
  When when = When::kAlways;
  // Every period-th layer is full, unless attention.sliding_window_pattern gives a list or another period. 0: the file
  // must give a list.
  uint32_t period = 0;
  bool full_first = false;  // the first layer of each period is the full one, not the last
  Theta theta = Theta::kShared;
  Scaling scaling = Scaling::kFull;
};

// How rope.scaling.yarn_log_multiplier, YaRN's mscale_all_dim, is read. kTenfoldBoth: it is mscale, too, unless it
// is 1.
enum class GgufLogMultiplier { kNotRead, kAsGiven, kTenfold, kTenfoldBoth };

// Factor of queries by position. kLlama4: fixed, of layers that do not rotate, if there are sliding ones. kBy...: by
// attention.temperature_scale, and the length at which it begins.
enum class GgufQueryScale { kNone, kLlama4, kByOriginalLength, kByTemperatureLength };

enum class GgufAlibi { kNone, kEight, kByKey, kEightIf40Layers };  // attention.max_alibi_bias

// Note on DeepSeek V4's layers.
inline constexpr std::string_view kDeepseekV4Note =
    "the last rotary_dim elements of a head rotate: set rotary_offset to the first of them; values are rotated keys, "
    "so the attention's output is rotated back by the query's position before the last projection (DIRECTION_INVERSE); "
    "a compressed key has the position of its block's first token";

struct GgufFile;

struct GgufType {
  std::string_view name;
  GgufPairs pairs = GgufPairs::kNorm;
  bool whole_head = false;  // llama.cpp aborts unless rope.dimension_count is the width of a head
  GgufDivisors divisors = GgufDivisors::kNone;
  GgufRotates rotates = GgufRotates::kAll;
  GgufAttention attention = GgufAttention::kAll;
  std::optional<GgufSliding> sliding = {};
  // Layers rotate rope.dimension_count or, if sliding, rope.dimension_count_swa elements. Else all of them rotate as
  // many as layer 0.
  bool width_by_layer = false;
  bool half_width = false;  // full layers rotate half of rope.dimension_count
  // Multi-head latent attention: the last rope.dimension_count elements of a query's head rotate, and scores are scaled
  // by the square of the YaRN magnitude of yarn_log_multiplier if scales_scores is true.
  bool latent = false;
  bool scales_scores = false;
  GgufLogMultiplier log_multiplier = GgufLogMultiplier::kNotRead;
  bool reads_betas = false;       // rope.scaling.yarn_beta_fast and yarn_beta_slow
  bool reads_ext_factor = false;  // rope.scaling.yarn_ext_factor
  double beta_fast = 32;          // default
  bool unscaled = false;          // rotates without scaling and factors; whole heads, whatever the file says
  double fixed_theta = 0;         // unless 0: rope.freq_base is not read
  bool only_theta = false;        // llama.cpp aborts unless rope.freq_base is fixed_theta
  std::string_view theta_key = "rope.freq_base";  // of layers that do not slide
  bool unit_magnitude = false;                    // llama.cpp cancels YaRN's magnitude, and reads no attn_factor
  bool reads_alpha = false;                       // theta is multiplied by rope.scaling.alpha^(head / (head - 2))
  GgufAlibi alibi = GgufAlibi::kNone;
  GgufQueryScale query_scale = GgufQueryScale::kNone;
  absl::Status (*add_notes)(GgufFile& file) = nullptr;  // adds the notes that only this architecture has
  std::string_view instead = "";                        // for an architecture that is not read: the reason
};

// Returns the row with this name, or null.
const GgufType* FindGgufType(std::string_view architecture);
const std::vector<GgufType>& GgufTypes();

}  // namespace posenc
