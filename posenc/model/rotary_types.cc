// Model types with a rotary embedding over one axis. Taken from the configuration and modeling files of transformers
// 5.24; scripts/check-model-types compares every row with an installed release.
#include <string_view>
#include <vector>

#include "posenc/model/model_types.h"

namespace posenc {
namespace {

using enum Layers;

constexpr Pairing kHalf = Pairing::kHalfSplit;
constexpr Pairing kInter = Pairing::kInterleaved;
constexpr Precision kF32 = kF32Precision;
constexpr Precision kVllm = kVllmPrecision;
constexpr Precision kFloat64Tables = {Frequencies::kFloat64, TableDtype::kTensor, Rounding::kEachOperation};
constexpr LayerPattern kAllFull = {.every = 1, .field = ""};
constexpr LayerPattern kAllLinear = {.every = 1, .field = "", .full = "linear_attention"};
constexpr LayerPattern kEvery4thIsFull = {4, "full_attention_interval", "linear_attention"};
constexpr LayerPattern kEvery6thAndLastAreFull = {.every = 6, .field = "", .last_always = true};
constexpr LayerPattern kEvery6thNeedsBoth = {.every = 6, .needs_full = true, .needs_others = true};
constexpr LayerPattern kLfm3 = {
    .every = 1, .field = "", .others = "conv", .cycle = {"sliding_attention", "conv", "full_attention", "conv"}};
constexpr LayerPattern kLaraMini = {
    .every = 1,
    .field = "",
    .others = "linear_attention",
    .cycle = {"linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention"}};
constexpr LayerPattern kMllama = {.every = 5,
                                  .field = "",
                                  .others = "full_attention",
                                  .full = "cross_attention",
                                  .at = 3,
                                  .indices_field = "cross_attention_layers",
                                  .ignores_list = true};
constexpr int64_t kZamba2Hybrids[] = {6, 12, 18, 24, 30, 36, 42, 47, 51};
constexpr LayerPattern kZamba2 = {.every = 1,
                                  .field = "",
                                  .others = "linear_attention",
                                  .full = "hybrid",
                                  .indices = kZamba2Hybrids,
                                  .of_layers = 54};
constexpr LayerPattern kDots3 = {
    .every = 4, .field = "", .full = "indexed_attention", .at = 1, .first = 2, .all_unless = "use_sliding_window"};
constexpr LayerPattern kOlmoHybrid = {.every = 4,
                                      .field = "",
                                      .others = "linear_attention",
                                      .last_if_none = true,
                                      .needs_full = true,
                                      .needs_others = true};
constexpr LayerPattern kListedAreFull = {.every = 1, .field = "", .others = "conv", .indices_field = "full_attn_idxs"};
constexpr LayerPattern kListedHaveAttention = {
    .every = 1 << 30, .field = "", .others = "linear_attention", .indices_field = "attn_layer_indices"};
constexpr LayerPattern kThirdHasAttention = {
    .every = 3, .field = "", .others = "recurrent", .full = "attention", .cycle_field = "block_types"};

constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kFull = "full_attention";
constexpr QueryScaleFunction kLlama4Scale = QueryScaleFunction::kLlama4;
constexpr QueryScaleFunction kMinistral3Scale = QueryScaleFunction::kMinistral3;

constexpr std::string_view kValuesRotate = "values are rotated like queries and keys";
constexpr std::string_view kLearnedScale =
    "the model also multiplies the frequencies by exp(alpha), and q of each head by scale * ln(position + 1) + bias, "
    "which "
    "are learned; the answer does not";
constexpr std::string_view kLastElements =
    "the last rotary_dim elements of a head rotate: set rotary_offset to the first of them";

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
  const RopeParameters muse_spark_default = {.rope_type = "default", .rope_theta = 500000};
  const RopeParameters gpt_oss_yarn = {
      .rope_type = "yarn", .factor = 32, .original_max_position_embeddings = 4096, .truncate = false};
  const RopeParameters ministral3_yarn = {.rope_type = "yarn",
                                          .rope_theta = 1e6,
                                          .factor = 16,
                                          .original_max_position_embeddings = 16384,
                                          .mscale = 1,
                                          .mscale_all_dim = 1};
  const RopeParameters mistral4_yarn = {.rope_type = "yarn",
                                        .rope_theta = 10000,
                                        .factor = 128,
                                        .original_max_position_embeddings = 8192,
                                        .mscale = 1,
                                        .mscale_all_dim = 1};
  const RopeParameters moonshine_default = {.rope_type = "default", .rope_theta = 10000, .partial_rotary_factor = 0.8};
  const RopeParameters transcribe_half = {.rope_type = "default", .rope_theta = 10000, .partial_rotary_factor = 0.5};
  const RopeParameters mistral_large4_yarn = {.rope_type = "yarn",
                                              .rope_theta = 10000,
                                              .factor = 2048,
                                              .original_max_position_embeddings = 512,
                                              .attention_factor = 1};

  // Default blocks of layer types. A layer type that a list omits has no rotary embedding by default.
  // clang-format off
  using Blocks = std::vector<LayerDefaults>;
  const Blocks beam = {{.layer_type = kSliding, .rope_theta = 10000}};
  const Blocks deepseek_v4 = {
      {.layer_type = "main", .rope_theta = 10000, .partial = 0.125},
      {.layer_type = "compress", .rope_theta = 160000, .partial = 0.125}};
  const Blocks dory = {
      {.layer_type = kSliding, .rope_theta = 10000},
      {.layer_type = kFull, .rope_theta = 1e7}};
  const Blocks dots3 = {
      {.layer_type = kSliding, .rope_theta = 50000, .theta_field = "swa_rope_theta"},
      {.layer_type = "indexed_attention", .rope_theta = 8e7, .theta_field = "rope_theta"},
      {.layer_type = kFull, .rope_theta = 8e7, .theta_field = "rope_theta"}};
  const Blocks gemma3 = {
      {.layer_type = kSliding, .rope_theta = 10000, .theta_field = "rope_local_base_freq"},
      {.layer_type = kFull, .rope_theta = 1e6, .theta_field = "rope_theta", .takes_rope_scaling = true}};
  const Blocks gemma4 = {
      {.layer_type = kSliding, .rope_theta = 10000},
      {.layer_type = kFull, .rope_theta = 1e6, .rope_type = "proportional", .partial = 0.25,
       .head_dim_field = "global_head_dim", .head_dim = 512}};
  const Blocks embedding_gemma2 = {
      {.layer_type = kSliding, .rope_theta = 10000},
      {.layer_type = kFull, .rope_theta = 1e6, .head_dim_field = "global_head_dim", .head_dim = 512}};
  const Blocks laguna = {
      {.layer_type = kFull, .rope_theta = 500000, .partial = 0.5},
      {.layer_type = kSliding, .rope_theta = 10000, .partial = 1}};
  const Blocks lfm3 = {
      {.layer_type = kSliding, .rope_theta = 10000},
      {.layer_type = kFull, .rope_theta = 1e6, .rope_type = "proportional", .partial = 0.5}};
  const Blocks mellum = {
      {.layer_type = kFull, .rope_theta = 500000},
      {.layer_type = kSliding, .rope_theta = 10000}};
  const Blocks mimo = {
      {.layer_type = kFull, .rope_theta = 5e6, .partial = 0.334, .partial_of_default = true},
      {.layer_type = kSliding, .rope_theta = 10000, .partial = 0.334, .partial_of_default = true}};
  const Blocks modernbert = {
      {.layer_type = kSliding, .rope_theta = 10000, .theta_field = "local_rope_theta", .takes_rope_scaling = true},
      {.layer_type = kFull, .rope_theta = 160000, .theta_field = "global_rope_theta", .takes_rope_scaling = true}};
  const Blocks olmo3 = {
      {.layer_type = kSliding, .rope_theta = 500000},
      {.layer_type = kFull, .rope_theta = 500000, .theta_field = "rope_theta", .takes_rope_scaling = true}};
  const Blocks step3p5 = {{.layer_type = kFull}, {.layer_type = kSliding}};
  const Blocks ultrabert = {
      {.layer_type = kSliding, .rope_theta = 10000},
      {.layer_type = kFull, .rope_theta = 2560000}};
  const Blocks zaya = {
      {.layer_type = "hybrid", .rope_theta = 5e6, .partial = 0.5},
      {.layer_type = "hybrid_sliding", .rope_theta = 10000, .partial = 0.5}};
  // clang-format on

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
      {.name = "hunyuan_v1_dense"},
      {.name = "hunyuan_v1_moe"},
      {.name = "hy_v3", .theta = 11158840, .head_dim = 128},
      {.name = "hyperclovax", .width = {4096, 32}},
      {.name = "idefics"},
      {.name = "internlm3", .head_dim = 128},
      {.name = "iquestcoder", .head_dim = 128},
      {.name = "jais2"},
      {.name = "jetmoe", .head_dim_field = "kv_channels", .head_dim = 128, .other_head_dim_field = "head_dim"},
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
      {.name = "ministral3", .block = ministral3_yarn, .head_dim = 128, .query_scale = kMinistral3Scale},
      {.name = "mistral", .width = {4096, 32}},
      {.name = "mixtral", .theta = 1e6},
      {.name = "mllama_text_model", .theta = 500000, .width = {4096, 32}, .pattern = kMllama},
      {.name = "molmo2_text", .head_dim = 128},
      {.name = "moshi"},
      {.name = "muse_glimmer_assistant", .theta = 500000, .head_dim = 128},
      {.name = "nanochat", .negate_angle = true},
      {.name = "neucodec", .head_dim = 64},
      {.name = "nomic_bert", .theta = 1000},
      {.name = "olmoe"},
      {.name = "phimoe", .theta = 1e6, .mscale_by_length = true},
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
      {.name = "dots3_note_audio_encoder", .partial = 0.5, .head_dim_field = "", .older_widths = "whisper_config",
       .width = {1280, 20}},
      {.name = "glm4_moe", .partial = 0.5},
      {.name = "sarvam_moe", .theta = 8e6, .partial = 1, .head_dim = 64},
      {.name = "glmasr_encoder", .partial = 0.5, .width = {1280, 20}},
      {.name = "gpt_neox", .theta_field = "rotary_emb_base", .partial = 0.25, .partial_field = "rotary_pct",
       .whole_by_heads = true},
      {.name = "gpt_neox_japanese", .theta_field = "rotary_emb_base", .partial = 1, .partial_field = "rotary_pct",
       .cuts_head = true},
      {.name = "minimax_m2", .theta = 5e6, .partial = 1, .head_dim = 128, .rotary_dim_field = "rotary_dim"},
      {.name = "minimax_m3_vl_text", .theta = 5e6, .partial = 1, .head_dim = 128},
      {.name = "nemotron", .partial = 0.5},
      {.name = "nemotron3_5_transcribe_asr_audio", .partial = 1, .block = transcribe_half, .width = {1280, 10}},
      {.name = "nemotron3_5_transcribe_word_timestamp", .partial = 1, .block = transcribe_half, .width = {1280, 16}},
      {.name = "nemotron3_diarization_audio", .partial = 1, .width = {512, 8}},
      {.name = "persimmon", .partial = 0.5, .width = {4096, 64}, .cuts_head = true},
      {.name = "phi", .partial = 0.5, .cuts_head = true},
      {.name = "phi3", .partial = 1, .original_length = 4096, .rope_types = {"default", "longrope"}},
      {.name = "phi4_multimodal", .partial = 1, .original_length = 4096, .rope_types = {"default", "longrope"}},
      {.name = "qwen3_next", .partial = 0.25, .head_dim = 256, .pattern = kEvery4thIsFull},
      {.name = "recurrent_gemma", .partial = 0.5, .rope_types = {"default"}, .pattern = kThirdHasAttention},
      {.name = "solar_open", .theta = 1e6, .partial = 1, .head_dim = 128, .rotates_whole = true},
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
      {.name = "olmo_hybrid", .precision = kF32, .pattern = kOlmoHybrid, .null_theta_is_none = true},

      // Rotary embedding on some layers only.
      {.name = "afmoe", .head_dim = 128, .layers = kSlidingOnly, .pattern = {4, "global_attn_every_n_layers"}},
      {.name = "cohere2", .pairing = kInter, .precision = kVllm,
       .width = {8192, 64}, .layers = kSlidingOnlyInWindow, .pattern = {4}},
      {.name = "cohere2_moe", .pairing = kInter, .precision = kVllm,
       .head_dim = 128, .layers = kSlidingOrDense, .pattern = {4}, .reads_rope_scaling = false},
      {.name = "exaone4", .width = {4096, 32}, .layers = kSlidingOnlyIfWindow, .pattern = {4}},
      {.name = "exaone_moe", .layers = kSlidingOnlyIfWindow, .pattern = {4}},
      {.name = "flint", .head_dim = 128, .layers = kSlidingOnly,
       .pattern = {.every = 4, .field = "", .last = true, .at = 1, .first = 1}},
      {.name = "granite_swa", .layers = kThetaList},
      {.name = "granitemoe_swa", .layers = kThetaList},
      {.name = "kolibri1", .head_dim = 128, .layers = kSlidingOnlyIfWindow, .pattern = {5, ""}},
      {.name = "lara_mini", .head_dim = 128, .layers = kSlidingOnly, .pattern = kLaraMini},
      {.name = "llama4_text", .pairing = kInter, .precision = kF32, .theta = 500000,
       .head_dim = 128, .layers = kNoRopeList, .query_scale = kLlama4Scale},
      {.name = "muse_glimmer_text", .head_dim = 128, .layers = kThetaFlags, .pattern = {4}},
      {.name = "muse_spark_text", .block = muse_spark_default, .head_dim = 64, .layers = kThetaFlags, .pattern = {4}},
      {.name = "smollm3", .theta = 2e6, .layers = kNoRopeList},

      // One block per layer type.
      {.name = "beam", .precision = kF32, .head_dim = 128, .layers = kByType, .pattern = {.every = 6, .field = "", .last = true}, .by_layer = beam,
       .query_scale = QueryScaleFunction::kBeam},
      {.name = "deepseek_v4", .pairing = kInter, .precision = kVllm, .partial = 0.125,
       .head_dim = 512, .layers = kMainOrCompressed, .by_layer = deepseek_v4,
       .note = kLastElements},
      {.name = "diffusion_gemma_text", .partial = 1,
       .head_dim = 256, .layers = kByType, .pattern = {.every = 6, .field = "", .last_always = true, .needs_others = true}, .by_layer = gemma4},
      {.name = "dots3_note_text", .pairing = kInter, .output_pairing = kHalf,
       .partial = 1, .head_dim = 64, .mla = true, .unrotated_dim = 128, .layers = kByTypeCopied, .pattern = kDots3,
       .by_layer = dots3, .block_theta = 8e7,
       .latent_head = {kSliding, "swa_head_dim", "swa_qk_nope_head_dim", "swa_qk_rope_head_dim", 256, 192},
       .keeps_softmax = true, .cuts_head = true},
      {.name = "dory", .head_dim = 256, .layers = kByType, .pattern = {.every = 4, .field = "", .lists_mlps = true}, .by_layer = dory, .block_theta = 10000},
      {.name = "embedding_gemma2_text", .head_dim = 256, .layers = kByType, .pattern = {.every = 6, .last_always = true}, .by_layer = embedding_gemma2},
      {.name = "gemma3_text", .head_dim = 256, .layers = kByTypeFilled, .pattern = {6}, .by_layer = gemma3},
      {.name = "gemma3n_text", .head_dim = 256, .layers = kByTypeFilled, .pattern = {.every = 5, .field = ""}, .by_layer = gemma3},
      {.name = "gemma4_text", .head_dim = 256, .layers = kByType, .pattern = kEvery6thAndLastAreFull, .by_layer = gemma4},
      {.name = "gemma4_unified_text", .head_dim = 256, .layers = kByType, .pattern = kEvery6thAndLastAreFull, .by_layer = gemma4},
      {.name = "laguna", .partial = 1, .head_dim = 128, .layers = kByType, .pattern = kAllFull, .by_layer = laguna},
      {.name = "lfm3", .precision = kF32, .head_dim = 128, .layers = kByType, .pattern = kLfm3, .by_layer = lfm3,
       .block_theta = 1e6},
      {.name = "mellum", .head_dim = 128, .layers = kByType, .pattern = kAllFull, .by_layer = mellum},
      {.name = "mimo_v2_flash", .partial = 1, .head_dim = 192, .layers = kByType, .pattern = {.every = 6, .field = "", .first = 1}, .by_layer = mimo},
      {.name = "modernbert", .precision = kVllm, .width = {768, 12}, .layers = kByTypeFilled,
       .pattern = {.every = 3, .field = "global_attn_every_n_layers", .at = 0}, .by_layer = modernbert},
      {.name = "modernbert-decoder", .precision = kVllm, .layers = kByTypeFilled,
       .pattern = {.every = 3, .field = "global_attn_every_n_layers", .at = 0}, .by_layer = modernbert},
      {.name = "olmo3", .precision = kF32, .layers = kByTypeFilled, .pattern = {4, ""}, .by_layer = olmo3},
      {.name = "step3p5", .partial = 1, .head_dim = 128, .layers = kByTypeFromLists, .pattern = kAllFull, .by_layer = step3p5},
      {.name = "t5gemma2_decoder", .head_dim = 256, .layers = kByTypeFilled, .pattern = kEvery6thNeedsBoth, .by_layer = gemma3},
      {.name = "t5gemma2_text", .head_dim = 256, .layers = kByTypeFilled, .pattern = kEvery6thNeedsBoth, .by_layer = gemma3},
      {.name = "ultrabert", .width = {4096, 32}, .layers = kByType, .pattern = {3, ""}, .by_layer = ultrabert, .block_theta = 10000},
      {.name = "zaya", .partial = 1, .head_dim = 128, .layers = kByType, .pattern = {.every = 1, .field = "", .full = "hybrid"}, .by_layer = zaya},

      // Multi-head latent attention.
      {.name = "axk1", .pairing = kInter, .output_pairing = kHalf, .reads_interleave = true,
       .head_dim = 64, .mla = true, .unrotated_dim = 128, .head_dim_agrees = true},
      {.name = "axk2", .pairing = kInter, .output_pairing = kHalf, .head_dim = 32, .mla = true, .unrotated_dim = 64},
      {.name = "bailing_hybrid", .pairing = kInter, .output_pairing = kHalf, .theta = 6e6,
       .head_dim = 64, .mla = true, .unrotated_dim = 128, .pattern = {6, "layer_group_size", "linear_attention"}},
      {.name = "deepseek_v2", .pairing = kInter, .precision = kF32, .head_dim = 64, .mla = true, .unrotated_dim = 128},
      {.name = "deepseek_v3", .pairing = kInter, .output_pairing = kHalf, .reads_interleave = true,
       .head_dim = 64, .mla = true, .unrotated_dim = 128, .head_dim_agrees = true},
      {.name = "deepseek_v32", .pairing = kInter, .output_pairing = kHalf, .head_dim = 64, .mla = true, .unrotated_dim = 128},
      {.name = "glm4_moe_lite", .pairing = kInter, .output_pairing = kHalf, .reads_interleave = true,
       .head_dim = 64, .mla = true, .unrotated_dim = 192, .head_dim_agrees = true, .rotates_whole = true},
      {.name = "glm_moe_dsa", .pairing = kInter, .output_pairing = kHalf, .head_dim = 64, .mla = true, .unrotated_dim = 192},
      {.name = "hy_v4", .head_dim = 64, .mla = true, .unrotated_dim = 192},
      {.name = "longcat_flash", .pairing = kInter, .output_pairing = kHalf, .theta = 1e7, .head_dim = 64, .mla = true, .unrotated_dim = 128, .head_dim_agrees = true, .head_dim_defaults = true},
      {.name = "minicpm3", .head_dim = 32, .mla = true, .unrotated_dim = 64},
      {.name = "mistral4", .pairing = kInter, .output_pairing = kHalf, .reads_interleave = true, .block = mistral4_yarn,
       .head_dim = 64, .mla = true, .unrotated_dim = 64, .share_of_whole_head = true,
       .query_scale = kMinistral3Scale},
      {.name = "mistral_large4_text", .pairing = kInter, .output_pairing = kHalf, .block = mistral_large4_yarn,
       .head_dim = 64, .mla = true, .unrotated_dim = 64, .layers = kNoRopeList, .note = kLearnedScale},
      {.name = "sarvam_mla", .pairing = kInter, .output_pairing = kHalf, .reads_interleave = true,
       .head_dim = 64, .mla = true, .unrotated_dim = 128},
      {.name = "youtu", .pairing = kInter, .output_pairing = kHalf, .reads_interleave = true,
       .head_dim = 64, .mla = true, .unrotated_dim = 128, .head_dim_agrees = true},

      // Rotary embedding only if a field selects it.
      {.name = "clvp_encoder", .precision = kF32, .theta_field = "", .head_dim_field = "",
       .hidden_size_field = "projection_dim", .width = {768, 12}, .share = {.divisor = 2, .least = 32}, .reads_block = false,
       .only_if = {"use_rotary_embedding", "true", true}, .note = kValuesRotate},
      {.name = "esm", .precision = kVllm, .reads_block = false, .only_if = {"position_embedding_type", "rotary"}},
      {.name = "granitemoehybrid", .pattern = kAllLinear, .only_if = {"position_embedding_type", "rope"}},
      {.name = "wav2vec2-conformer", .precision = kF32, .theta_field = "rotary_embedding_base",
       .only_if = {"position_embeddings_type", "rotary"},
       .terms = Terms::kConformerByType, .position_type = "relative"},
      {.name = "wav2vec2-bert", .precision = kF32, .theta_field = "rotary_embedding_base",
       .only_if = {"position_embeddings_type", "rotary"},
       .terms = Terms::kConformerByType, .position_type = "relative_key"},
      {.name = "zamba2", .head_dim_field = "attention_head_dim", .other_head_dim_field = "head_dim", .share = {.times = 2},
       .layers = kHybridOnly, .pattern = kZamba2, .only_if = {"use_mem_rope", "true"}},

      // Rotated width from rotary_dim, or the whole head (RoFormer).
      {.name = "codegen", .pairing = kInter, .theta_field = "", .head_dim_field = "rotary_dim", .head_dim = 64,
       .reads_block = false, .whole_by_heads = true},
      {.name = "gptj", .pairing = kInter, .theta_field = "", .head_dim_field = "rotary_dim", .head_dim = 64,
       .reads_block = false, .whole_by_heads = true},
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
