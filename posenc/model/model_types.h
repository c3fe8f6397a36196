// What transformers' model classes decide where a config.json is silent: one row a model_type.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "posenc/spec.h"

namespace posenc {

// What a class does with partial_rotary_factor when rope_type is "default".
enum class Partial { kIgnored, kHonoured };

// Where the width of a head comes from, if not from hidden_size / num_attention_heads.
enum class HeadWidth { kHeadDim, kQkRopeHeadDim, kRotaryDim };

// How the layers differ.
enum class Layers {
  kUniform,
  kLocalGlobal,  // sliding_attention unscaled with a theta of its own, full_attention as the block says
  kSlidingOnly,  // full_attention layers have no rotary embedding
  kNoRopeList,   // no_rope_layers: 1 means rope
};

enum class ModelAlibi { kNone, kBloom, kMpt, kFalcon };

struct ModelType {
  std::string_view model_type;
  Pairing input_pairing;
  Pairing output_pairing;
  Precision precision;  // PRECISION_PRESET_MODEL
  double rope_theta = 10000;
  Partial partial = Partial::kIgnored;
  double partial_rotary_factor = 1;
  // Outside the block, the only names by which the class knows these two.
  std::string_view theta_name = "rope_theta";
  std::string_view partial_name = "partial_rotary_factor";
  // The class's own original_max_position_embeddings, which counts as one that stands outside the block. 0: none.
  double original_length = 0;
  // The class's own block, where the file has none.
  std::optional<RopeParameters> block;
  HeadWidth head_width = HeadWidth::kHeadDim;
  int64_t head_dim = 0;  // 0: no default but hidden_size / num_attention_heads
  Layers layers = Layers::kUniform;
  int64_t sliding_pattern = 0;  // every n-th layer is full_attention, where layer_types is absent
  double local_rope_theta = 0;  // of sliding_attention under kLocalGlobal
  // A field of the scaling block that the class reads for something else: it multiplies its queries by
  // 1 + field * ln(1 + floor(position / L0)).
  std::string_view query_scale_field = "";
  bool reads_interleave = false;  // rope_interleave false: q and k come half-split
  bool scales_softmax = false;    // multiplies the softmax scale by m(s, mscale_all_dim)^2
  ModelAlibi alibi = ModelAlibi::kNone;
  bool t5 = false;  // T5's buckets
};

const std::vector<ModelType>& ModelTypes();

// The row of that name, or null.
const ModelType* FindModelType(std::string_view model_type);

}  // namespace posenc
