// Model types with one rotary embedding over one axis for all layers that have one. Taken from the configuration and
// modeling files of transformers 5.24; scripts/check-model-types compares every row with an installed release.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/model/class_rules.h"
#include "posenc/model/parts.h"

namespace posenc {
namespace {

constexpr Pairing kInter = Pairing::kInterleaved;
constexpr Precision kF32 = kF32Precision;
constexpr Precision kVllm = kVllmPrecision;
constexpr Precision kFloat64Tables = {Frequencies::kFloat64, TableDtype::kTensor, Rounding::kEachOperation};

// clang-format off
constexpr LayerPattern kAllLinear = {.every = 1, .field = "", .full = "linear_attention"};
constexpr LayerPattern kEvery4thIsFull = {4, "full_attention_interval", "linear_attention"};
constexpr LayerPattern kMllama = {.every = 5, .field = "", .others = "full_attention", .full = "cross_attention", .at = 3,
                                  .indices_field = "cross_attention_layers", .ignores_list = true};
constexpr LayerPattern kZamba2 = {.every = 1, .field = "", .others = "linear_attention", .full = "hybrid"};
constexpr LayerPattern kOlmoHybrid = {.every = 4, .field = "", .others = "linear_attention",
                                      .needs_full = true, .needs_others = true};
constexpr LayerPattern kListedAreFull = {.every = 1, .field = "", .others = "conv", .indices_field = "full_attn_idxs"};
constexpr LayerPattern kListedHaveAttention = {.every = 1 << 30, .field = "", .others = "linear_attention",
                                               .indices_field = "attn_layer_indices"};
constexpr LayerPattern kThirdHasAttention = {.every = 3, .field = "", .others = "recurrent", .full = "attention"};
// clang-format on

constexpr std::string_view kValuesRotate = "values are rotated like queries and keys";

absl::Status NegateAngle(Part&, RotarySettings&, RopeParameters& p) {
  p.negate_angle = true;
  return absl::OkStatus();
}

// kv_channels or attention_head_dim, and head_dim where it is absent.
absl::Status ReadEitherHeadDim(Part& part) {
  if (part.config.Find(part.type.head_dim_field) == nullptr && part.config.Find("head_dim") != nullptr)
    part.type.head_dim_field = "head_dim";
  return absl::OkStatus();
}

// whisper_config holds the widths of the class's older files.
absl::Status ReadWhisperWidths(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto older, part.config.Object("whisper_config"));
  if (!older) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(auto hidden, older->Integer({"d_model"}));
  POSENC_ASSIGN_OR_RETURN(auto heads, older->Integer({"encoder_attention_heads"}));
  if (!hidden) {
    POSENC_ASSIGN_OR_RETURN(hidden, part.config.Integer({part.type.hidden_size_field}));
  }
  if (!heads) {
    POSENC_ASSIGN_OR_RETURN(heads, HeadsOf(part));
  }
  if (!hidden || heads.value_or(0) == 0) return absl::OkStatus();
  part.type.head_dim = *hidden / *heads;
  part.Comes("head_dim", older->Path("d_model"), older->Path("encoder_attention_heads"));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> HalfOfHead(const Part&, int64_t hidden, int64_t heads) {
  return std::max(hidden / heads / 2, int64_t{32});
}

absl::StatusOr<int64_t> TwiceTheHead(const Part&, int64_t hidden, int64_t heads) { return 2 * hidden / heads; }

// The width of a head is hidden_size / num_attention_heads, whatever the field says that gives the rotated elements.
absl::Status ReadWholeHeadByHeads(Part& part, RotarySettings& settings, RopeParameters& p) {
  POSENC_ASSIGN_OR_RETURN(const auto hidden, part.config.Integer({"n_embd", "hidden_size"}));
  POSENC_ASSIGN_OR_RETURN(const auto heads, HeadsOf(part));
  if (!hidden || heads.value_or(0) == 0) return absl::OkStatus();
  part.whole_head = *hidden / *heads;
  const double share = part.type.partial ? p.partial_rotary_factor.value_or(1) : 1;  // one above 1 is refused as such
  const double width = static_cast<double>(*settings.head_dim) * share;
  if (share > 1 || width <= static_cast<double>(part.whole_head)) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", part.config.Path(part.type.head_dim_field), fmt::format("{}", width),
                         fmt::format("must be at most {}, the width of a head", part.whole_head));
}

// The class computes narrower tables for a share below 1, and fails to apply them.
absl::Status CheckWholeHead(Part& part, RotarySettings&, RopeParameters& p) {
  if (p.partial_rotary_factor.value_or(1) == 1 || p.rope_type == "proportional") return absl::OkStatus();
  return NarrowerTables(part, p);
}

// Phi-3 takes its original length from outside the block, by default 4096, and has older names of "longrope".
absl::Status ReadPhi3(Part& part, RopeBlock& block) {
  RopeParameters& p = block.parameters;
  if (p.rope_type == "su" || p.rope_type == "yarn") {
    part.Say("RENAMED", block.TypePath(), fmt::format("Phi-3 reads \"{}\" as \"longrope\"", p.rope_type));
    p.rope_type = "longrope";
  }
  constexpr std::string_view kLength = "original_max_position_embeddings";
  if (p.rope_type != "longrope" || part.config.Find(kLength) != nullptr) return absl::OkStatus();
  constexpr double kDefault = 4096;
  part.Say(
      "DEFAULTED", std::string(kLength),
      fmt::format("absent outside the block, where model_type \"{}\" reads it: {} is used", part.type.name, kDefault));
  if (p.original_max_position_embeddings.value_or(kDefault) != kDefault) {
    part.Say("NOT_USED", block.Path(kLength), fmt::format("{} is ignored", *p.original_max_position_embeddings));
  }
  p.original_max_position_embeddings = kDefault;
  return absl::OkStatus();
}

// With any scaling, PhiMoE multiplies cos and sin by short_mscale, or by long_mscale for sequences above
// original_max_position_embeddings, instead of the scaling's own factor, and always takes longrope's short factors. A
// factor that depends on the length is not a setting.
absl::Status ReadMscaleByLength(Part& part, RopeBlock& block) {
  RopeParameters& p = block.parameters;
  if (p.rope_type == "default") return absl::OkStatus();
  std::optional<double> mscale[2];
  constexpr std::string_view kNames[] = {"short_mscale", "long_mscale"};
  for (size_t n = 0; n < 2; ++n) {
    POSENC_ASSIGN_OR_RETURN(mscale[n], block.object->Number({kNames[n]}));
    if (mscale[n]) continue;
    return InvalidArgument("MISSING", block.Path(kNames[n]), "",
                           fmt::format("must be given with rope_type \"{}\"", p.rope_type));
  }
  if (*mscale[0] != *mscale[1]) {
    return Against(
        block.Path(kNames[0]),
        InvalidArgument("UNSUPPORTED", block.Path(kNames[1]), fmt::format("{}", *mscale[1]),
                        fmt::format("must be equal to short_mscale, {}: a factor by the sequence's length is "
                                    "not a setting",
                                    *mscale[0])));
  }
  if (p.rope_type != "longrope") {
    return InvalidArgument("UNSUPPORTED", block.TypePath(), p.rope_type,
                           fmt::format("must be \"longrope\" or \"default\" for model_type \"{}\"", part.type.name));
  }
  part.Say("NOT_USED", block.Path("long_factor"),
           fmt::format("model_type \"{}\" computes with short_factor for all lengths", part.type.name));
  p.longrope_branch = LongropeBranch::kShort;
  p.attention_factor = *mscale[0];
  part.Comes("rope_parameters.attention_factor", block.Path(kNames[0]));
  return absl::OkStatus();
}

// RecurrentGemma: block_types repeats.
absl::StatusOr<LayerTypeNames> TypesByBlockTypes(const Part& part, int64_t layers) {
  constexpr size_t kLongestName = 64;
  POSENC_ASSIGN_OR_RETURN(const auto listed, ListedTypes(part));
  POSENC_ASSIGN_OR_RETURN(const auto cycle, part.config.Strings("block_types"));
  if (listed || !cycle || cycle->empty()) return ListedOrPattern(part, layers);
  for (size_t n = 0; n < cycle->size(); ++n) {  // each is copied for many layers
    if ((*cycle)[n].size() <= kLongestName) continue;
    return InvalidArgument("UNKNOWN_VALUE", fmt::format("{}[{}]", part.config.Path("block_types"), n), (*cycle)[n],
                           "must be a layer type of transformers, such as recurrent or attention");
  }
  LayerTypeNames types;
  for (int64_t n = 0; n < layers; ++n) types.push_back((*cycle)[n % cycle->size()]);
  return types;
}

// The last layer has full attention if no other has.
absl::StatusOr<LayerTypeNames> OlmoHybridTypes(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(const auto listed, ListedTypes(part));
  if (listed) return *listed;
  POSENC_ASSIGN_OR_RETURN(LayerTypeNames types, ListedOrPattern(part, layers));
  const bool none = std::none_of(types.begin(), types.end(), HasAttention);
  if (none && !types.empty()) types.back() = part.type.pattern.full;
  return types;
}

// rope_theta null means no rotary embedding.
absl::StatusOr<LayerBlock> BlockUnlessNullTheta(Part& part, const RopeBlocks& blocks, const std::string& layer_type,
                                                const LayerTypeNames&) {
  POSENC_ASSIGN_OR_RETURN(LayerBlock own, UsualBlock(part, blocks, layer_type));
  if (!own.block || own.block->parameters.rope_theta) return own;
  const auto& nulls = own.block->nulls;
  const bool null_in_block = std::find(nulls.begin(), nulls.end(), "rope_theta") != nulls.end();
  if (!null_in_block && !part.config.IsNull("rope_theta")) return own;
  part.Say("NO_ROPE", "rope_theta",
           fmt::format("null: the layers of model_type \"{}\" then have no rotary embedding", part.type.name));
  return LayerBlock{};
}

// Molmo 2: the block scales the layers that rope_scaling_layers lists, by default all.
constexpr std::string_view kUnscaled = "unscaled";

absl::StatusOr<LayerTypeNames> TypesByScalingLayers(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(const auto scaled, part.config.Numbers("rope_scaling_layers"));
  LayerTypeNames types;
  if (!scaled) return types;
  if (layers == 0) {
    return InvalidArgument("MISSING", part.config.Path("num_hidden_layers"), "",
                           "must be given beside rope_scaling_layers");
  }
  for (int64_t n = 0; n < layers; ++n) {
    const bool scales = std::find(scaled->begin(), scaled->end(), static_cast<double>(n)) != scaled->end();
    types.emplace_back(scales ? "scaled" : kUnscaled);
  }
  return types;
}

absl::StatusOr<LayerBlock> BlockUnlessUnscaled(Part& part, const RopeBlocks& blocks, const std::string& layer_type,
                                               const LayerTypeNames&) {
  POSENC_ASSIGN_OR_RETURN(LayerBlock own, UsualBlock(part, blocks, layer_type));
  if (own.block && layer_type == kUnscaled) {
    own.block->parameters = {.rope_type = "default", .rope_theta = own.block->parameters.rope_theta};
  }
  return own;
}

// The class's own list is for its default number of layers, 54.
absl::StatusOr<LayerTypeNames> Zamba2Types(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(auto listed, ListedTypes(part));
  if (listed || layers == 0) return listed.value_or(LayerTypeNames());
  LayerTypeNames types(54, "linear_attention");
  for (size_t hybrid : {6, 12, 18, 24, 30, 36, 42, 47, 51}) types[hybrid] = "hybrid";
  return types;
}

absl::StatusOr<LayerBlock> BlockOfHybrids(Part& part, const RopeBlocks& blocks, const std::string& layer_type,
                                          const LayerTypeNames&) {
  if (layer_type != "hybrid") return LayerBlock{};
  return UsualBlock(part, blocks, layer_type);
}

RopeParameters Llama3(double theta, double factor, double length, double low, double high) {
  return {.rope_type = "llama3",
          .rope_theta = theta,
          .factor = factor,
          .original_max_position_embeddings = length,
          .low_freq_factor = low,
          .high_freq_factor = high};
}

std::vector<ModelType> MakeRotaryTypes() {
  // Default scaling blocks.
  const RopeParameters gpt_oss_yarn = {
      .rope_type = "yarn", .factor = 32, .original_max_position_embeddings = 4096, .truncate = false};
  const RopeParameters ministral3_yarn = {.rope_type = "yarn",
                                          .rope_theta = 1e6,
                                          .factor = 16,
                                          .original_max_position_embeddings = 16384,
                                          .mscale = 1,
                                          .mscale_all_dim = 1};
  const RopeParameters moonshine_default = {.rope_type = "default", .rope_theta = 10000, .partial_rotary_factor = 0.8};
  const RopeParameters transcribe_half = {.rope_type = "default", .rope_theta = 10000, .partial_rotary_factor = 0.5};

  const ClassRules phimoe = {.block = ReadMscaleByLength, .block_fields = {"short_mscale", "long_mscale"}};
  const ClassRules zamba2 = {
      .adapt = ReadEitherHeadDim, .head_dim = TwiceTheHead, .layer_types = Zamba2Types, .layer_block = BlockOfHybrids};

  // clang-format off
  return {
      // Like Llama: half-split, eager precision, the whole head rotates.
      {.name = "apertus", .theta = 1.2e7, .block = Llama3(1.2e7, 8, 8192, 1, 4)},
      {.name = "apertus1p5_text", .theta = 1.2e7, .block = Llama3(1.2e7, 8, 8192, 1, 4)},
      {.name = "arcee"},
      {.name = "aria_text", .width = {4096, 32}},
      {.name = "bitnet", .theta = 500000},
      {.name = "chameleon"},
      {.name = "csm", .theta = 500000},
      {.name = "csm_depth_decoder_model", .theta = 500000, .width = {1024, 8}},
      {.name = "cwm", .theta = 1e6, .block = Llama3(1e6, 16, 8192, 1, 4), .head_dim = 128},
      {.name = "dbrx"},
      {.name = "deepseek_ocr2_encoder", .width = {4096, 32}},
      {.name = "deepseek_ocr2_text", .head_dim_field = "", .width = {4096, 32}},
      {.name = "dia_decoder", .head_dim = 128},
      {.name = "dia_encoder", .head_dim = 128},
      {.name = "diffllama"},
      {.name = "doge"},
      {.name = "dots1"},
      {.name = "emu3_text_model", .theta = 1e6, .width = {4096, 32}},
      {.name = "esmc", .width = {2560, 40}},
      {.name = "eurobert"},
      {.name = "exaone", .theta = 500000, .width = {4096, 32}},
      {.name = "falcon_h1"},
      {.name = "gemma", .head_dim = 256},
      {.name = "gemma2", .head_dim = 256},
      {.name = "gpt_oss", .theta = 150000, .block = gpt_oss_yarn, .head_dim = 64},
      {.name = "gradium_phonon_tts"},
      {.name = "granite", .width = {4096, 32}},
      {.name = "granite4_vision_text", .width = {4096, 32}},
      {.name = "granite_docling_text", .width = {1024, 16}},
      {.name = "granitemoe"},
      {.name = "granitemoeshared"},
      {.name = "gte", .theta = 160000},
      {.name = "higgs_audio_v2", .block = Llama3(500000, 32, 1024, 0.125, 0.5), .head_dim = 128},
      {.name = "hrm_text", .head_dim = 128},
      {.name = "hunyuan_v1_dense", .rules = {.block = ReadHunyuanAlpha}},
      {.name = "hunyuan_v1_moe", .rules = {.block = ReadHunyuanAlpha}},
      {.name = "hy_v3", .theta = 11158840, .head_dim = 128},
      {.name = "hyperclovax", .width = {4096, 32}},
      {.name = "idefics"},
      {.name = "internlm3", .head_dim = 128},
      {.name = "iquestcoder", .head_dim = 128},
      {.name = "jais2"},
      {.name = "jetmoe", .head_dim_field = "kv_channels", .head_dim = 128, .rules = {.adapt = ReadEitherHeadDim}},
      {.name = "jina_embeddings_v3", .theta = 20000},
      {.name = "kyutai_speech_to_text"},
      {.name = "lasr_encoder", .width = {512, 8}},
      {.name = "lfm2", .theta = 1e6, .width = {2560, 32}, .pattern = kListedAreFull},
      {.name = "lfm2_moe", .theta = 1e6},
      {.name = "llama", .width = {4096, 32}},
      {.name = "mimi", .width = {512, 8}},
      {.name = "mimi_decoder", .width = {512, 8}},
      {.name = "mimi_encoder", .width = {512, 8}},
      {.name = "minimax", .theta = 1e6,
       .pattern = {.every = 2, .field = "", .others = "linear_attention", .at = 0}},
      {.name = "ministral"},
      {.name = "ministral3", .block = ministral3_yarn, .head_dim = 128, .query_scale = QueryScaleFunction::kMinistral3},
      {.name = "mistral", .width = {4096, 32}},
      {.name = "mixtral", .theta = 1e6},
      {.name = "mllama_text_model", .theta = 500000, .width = {4096, 32}, .pattern = kMllama},
      {.name = "molmo2_text", .head_dim = 128,
       .rules = {.layer_types = TypesByScalingLayers, .layer_block = BlockUnlessUnscaled}},
      {.name = "moshi"},
      {.name = "muse_glimmer_assistant", .theta = 500000, .head_dim = 128},
      {.name = "nanochat", .rules = {.settings = NegateAngle}},
      {.name = "neucodec", .head_dim = 64},
      {.name = "nomic_bert", .theta = 1000},
      {.name = "olmoe"},
      {.name = "phimoe", .theta = 1e6, .rules = phimoe},
      {.name = "pocket_tts"},
      {.name = "pocket_tts_audio_tokenizer"},
      {.name = "pocket_tts_audio_tokenizer_decoder"},
      {.name = "pocket_tts_audio_tokenizer_encoder"},
      {.name = "qwen2", .width = {4096, 32}},
      {.name = "qwen2_5_omni_dit", .head_dim = 64},
      {.name = "qwen2_moe"},
      {.name = "qwen3", .head_dim = 128},
      {.name = "qwen3_moe"},
      {.name = "qwen3_omni_moe_talker_code_predictor", .head_dim = 128},
      {.name = "seed_oss", .head_dim = 128},
      {.name = "starcoder2"},
      {.name = "t5_gemma_module", .head_dim = 256},
      {.name = "timesfm2_5", .head_dim = 80},
      {.name = "unlimited_ocr_text", .head_dim_field = "", .width = {1280, 10}},
      {.name = "vaultgemma", .head_dim = 256},
      {.name = "voxtral_realtime_encoder", .head_dim = 64},
      {.name = "voxtral_realtime_text", .width = {4096, 32}},
      {.name = "xcodec2", .head_dim = 64},

      // Part of the head rotates (partial_rotary_factor).
      {.name = "bamba", .partial = 0.5, .partial_field = "", .pattern = kListedHaveAttention},
      {.name = "dots3_note_audio_encoder", .partial = 0.5, .head_dim_field = "", .width = {1280, 20},
       .rules = {.adapt = ReadWhisperWidths}},
      {.name = "glm4_moe", .partial = 0.5},
      {.name = "sarvam_moe", .theta = 8e6, .partial = 1, .head_dim = 64},
      {.name = "glmasr_encoder", .partial = 0.5, .width = {1280, 20}},
      {.name = "gpt_neox", .theta_field = "rotary_emb_base", .partial = 0.25, .partial_field = "rotary_pct",
       .rules = {.settings = ReadWholeHeadByHeads}},
      {.name = "gpt_neox_japanese", .theta_field = "rotary_emb_base", .partial = 1, .partial_field = "rotary_pct",
       .cuts_head = true},
      {.name = "minimax_m2", .theta = 5e6, .partial = 1, .rotary_dim_field = "rotary_dim", .head_dim = 128},
      {.name = "minimax_m3_vl_text", .theta = 5e6, .partial = 1, .head_dim = 128},
      {.name = "nemotron", .partial = 0.5},
      {.name = "nemotron3_5_transcribe_asr_audio", .partial = 1, .block = transcribe_half, .width = {1280, 10}},
      {.name = "nemotron3_5_transcribe_word_timestamp", .partial = 1, .block = transcribe_half, .width = {1280, 16}},
      {.name = "nemotron3_diarization_audio", .partial = 1, .width = {512, 8}},
      {.name = "persimmon", .partial = 0.5, .width = {4096, 64}, .cuts_head = true},
      {.name = "phi", .partial = 0.5, .cuts_head = true},
      {.name = "phi3", .partial = 1, .rope_types = {"default", "longrope"}, .rules = {.block = ReadPhi3}},
      {.name = "phi4_multimodal", .partial = 1, .rope_types = {"default", "longrope"}, .rules = {.block = ReadPhi3}},
      {.name = "qwen3_next", .partial = 0.25, .head_dim = 256, .pattern = kEvery4thIsFull},
      {.name = "recurrent_gemma", .partial = 0.5, .rope_types = {"default"}, .pattern = kThirdHasAttention,
       .rules = {.layer_types = TypesByBlockTypes, .fields = {"block_types"}}},
      {.name = "solar_open", .theta = 1e6, .partial = 1, .head_dim = 128, .rules = {.settings = CheckWholeHead}},
      {.name = "stablelm", .partial = 0.25, .cuts_head = true},

      // Interleaved pairing.
      {.name = "blt_global_transformer", .pairing = kInter, .theta = 500000, .width = {2048, 16}},
      {.name = "blt_local_decoder", .pairing = kInter, .theta = 500000, .width = {1024, 16}},
      {.name = "blt_local_encoder", .pairing = kInter, .theta = 500000, .width = {1024, 16}},
      {.name = "blt_patcher", .pairing = kInter, .width = {768, 12}},
      {.name = "glm", .pairing = kInter, .partial = 0.5, .head_dim = 128},
      {.name = "glm4", .pairing = kInter, .partial = 0.5, .head_dim = 128},
      {.name = "helium", .pairing = kInter, .theta = 100000, .head_dim = 128},
      {.name = "moonshine", .pairing = kInter, .partial = 0.9, .heads_field = "decoder_num_attention_heads"},
      {.name = "moonshine_streaming", .pairing = kInter, .partial = 1, .block = moonshine_default},
      {.name = "openai_privacy_filter", .pairing = kInter, .theta = 150000, .block = gpt_oss_yarn, .head_dim = 64},
      {.name = "pe_audio_encoder", .pairing = kInter, .theta = 20000, .head_dim = 128},
      {.name = "pe_audio_video_encoder", .pairing = kInter, .theta = 20000, .head_dim = 128},
      {.name = "pe_video_encoder", .pairing = kInter, .theta = 20000, .head_dim = 128},

      // Tables are rounded to the tensor's type, products are not.
      {.name = "cohere", .pairing = kInter, .precision = kVllm, .theta = 500000},
      {.name = "evolla", .precision = kVllm, .theta = 500000},
      {.name = "EvollaModel", .precision = kVllm, .theta = 500000},

      // Tables stay float32.
      {.name = "ernie4_5", .pairing = kInter, .precision = kF32, .theta = 500000, .head_dim = 128},
      {.name = "ernie4_5_moe", .pairing = kInter, .precision = kF32, .theta = 500000},
      {.name = "flex_olmo", .precision = kF32, .theta = 500000},
      {.name = "olmo", .precision = kF32},
      {.name = "olmo2", .precision = kF32},
      {.name = "olmo_hybrid", .precision = kF32, .pattern = kOlmoHybrid,
       .rules = {.layer_types = OlmoHybridTypes, .layer_block = BlockUnlessNullTheta}},

      // Rotary embedding only if a field selects it.
      {.name = "clvp_encoder", .precision = kF32, .theta_field = "", .block_in = BlockIn::kNowhere, .head_dim_field = "",
       .hidden_size_field = "projection_dim", .width = {768, 12}, .only_if = {"use_rotary_embedding", "true", true},
       .rules = {.head_dim = HalfOfHead}, .note = kValuesRotate},
      {.name = "esm", .precision = kVllm, .block_in = BlockIn::kNowhere, .only_if = {"position_embedding_type", "rotary"}},
      {.name = "granitemoehybrid", .pattern = kAllLinear, .only_if = {"position_embedding_type", "rope"}},
      {.name = "wav2vec2-conformer", .precision = kF32, .theta_field = "rotary_embedding_base",
       .only_if = {"position_embeddings_type", "rotary"},
       .terms = Terms::kNamedConformer},
      {.name = "wav2vec2-bert", .precision = kF32, .theta_field = "rotary_embedding_base",
       .only_if = {"position_embeddings_type", "rotary"},
       .terms = Terms::kShawOrConformer},
      {.name = "zamba2", .head_dim_field = "attention_head_dim", .pattern = kZamba2,
       .only_if = {"use_mem_rope", "true"}, .rules = zamba2},

      // Rotated width from rotary_dim, or the whole head (RoFormer).
      {.name = "codegen", .pairing = kInter, .theta_field = "", .block_in = BlockIn::kNowhere,
       .head_dim_field = "rotary_dim", .head_dim = 64,
       .rules = {.settings = ReadWholeHeadByHeads, .fields = {"n_embd", "n_head"}}},
      {.name = "gptj", .pairing = kInter, .theta_field = "", .block_in = BlockIn::kNowhere,
       .head_dim_field = "rotary_dim", .head_dim = 64,
       .rules = {.settings = ReadWholeHeadByHeads, .fields = {"n_embd", "n_head"}}},
      {.name = "roformer", .pairing = kInter, .precision = kFloat64Tables},
  };
  // clang-format on
}

}  // namespace

const std::vector<ModelType>& RotaryTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeRotaryTypes());
  return types;
}

}  // namespace posenc
