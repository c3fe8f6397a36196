// Rows of model types, taken from the configuration and modeling files of transformers 5.23. scripts/check-model-types
// compares every row with the results of an installed release.
#include "posenc/model/model_types.h"

#include <map>
#include <string>
#include <utility>

namespace posenc {
namespace {

using enum Scheme;
using enum Layers;

constexpr Pairing kHalf = Pairing::kHalfSplit;
constexpr Pairing kInter = Pairing::kInterleaved;
constexpr Precision kF32 = kF32Precision;
constexpr Precision kVllm = kVllmPrecision;
constexpr Precision kNumpyTables = {Frequencies::kFloat64, TableDtype::kTensor, Rounding::kEachOperation};
constexpr MropeOrder kContig = MropeOrder::kContiguous;
constexpr MropeOrder kThirds = MropeOrder::kInterleaved;
constexpr MropeOrder kErnie = MropeOrder::kErnie;
constexpr LayerPattern kLinear4 = {4, "full_attention_interval", "linear_attention"};
constexpr std::string_view kLlama4Scaling = "llama_4_scaling_beta";
constexpr std::string_view kColumnsFirst = "axis 0 of the positions is the column (w), axis 1 the row (h)";
constexpr std::string_view kCentres = "positions are 2 pi times the patch centres' coordinates in -1 .. +1, (h, w)";
constexpr std::string_view kGemma4 = "positions are (column, row), and (-1, -1) for padding";
constexpr std::string_view kFromOne = "positions are (column + 1, row + 1); the class token is not rotated";
constexpr std::string_view kNextOfRows =
    "positions are (row, column) in the aggregated map, from 1; all hidden_size elements rotate as one head, before "
    "the split into heads";
constexpr std::string_view kRowColumn =
    "positions are (ignored, row, column); for text, row and column are the token's position";
constexpr std::string_view kValuesToo = "values are rotated like queries and keys";
constexpr std::string_view kMemory =
    "axis 0 of the positions is the column (w), axis 1 the row (h); only memory_attention rotates; object pointers "
    "are not rotated";
constexpr std::string_view kLastRotate =
    "the last rotary_dim elements of a head rotate: set rotary_offset to the first of them";

RopeParameters Llama3(double theta, double factor, double length, double low, double high) {
  return {.rope_type = "llama3",
          .rope_theta = theta,
          .factor = factor,
          .original_max_position_embeddings = length,
          .low_freq_factor = low,
          .high_freq_factor = high};
}

RopeParameters Yarn(double theta, double factor, double length) {
  return {.rope_type = "yarn", .rope_theta = theta, .factor = factor, .original_max_position_embeddings = length};
}

std::vector<ModelType> MakeModelTypes() {
  RopeParameters gpt_oss = Yarn(150000, 32, 4096);
  gpt_oss.rope_theta.reset();
  gpt_oss.truncate = false;
  RopeParameters ministral3 = Yarn(1e6, 16, 16384), mistral4 = Yarn(10000, 128, 8192);
  ministral3.mscale = ministral3.mscale_all_dim = mistral4.mscale = mistral4.mscale_all_dim = 1;
  RopeParameters mistral_large4 = Yarn(10000, 2048, 512);
  mistral_large4.attention_factor = 1;

  const RopeParameters muse_spark = {.rope_type = "default", .rope_theta = 500000};

  // rope_scaling applies to full_attention, and to sliding_attention if scale_local.
  const auto local_global = [](double local, std::string_view local_field, double global, std::string_view global_field,
                               bool scale_local) {
    return std::vector<LayerDefaults>{{"sliding_attention", local, local_field, scale_local},
                                      {"full_attention", global, global_field, true}};
  };
  const auto two = [](LayerDefaults first, LayerDefaults second) { return std::vector<LayerDefaults>{first, second}; };
  const auto by_head = [](double local, double global) {  // Gemma 4: wider heads in full_attention layers
    return std::vector<LayerDefaults>{{.layer_type = "sliding_attention", .rope_theta = local},
                                      {.layer_type = "full_attention",
                                       .rope_theta = global,
                                       .rope_type = "proportional",
                                       .partial = 0.25,
                                       .head_dim_field = "global_head_dim",
                                       .head_dim = 512}};
  };
  const auto gemma3 = local_global(10000, "rope_local_base_freq", 1e6, "rope_theta", false);
  const auto gemma4 = by_head(10000, 1e6);
  const auto modernbert = local_global(10000, "local_rope_theta", 160000, "global_rope_theta", true);
  const auto olmo3 = local_global(500000, "", 500000, "rope_theta", false);
  const auto dots3 = std::vector<LayerDefaults>{{"sliding_attention", 50000, "swa_rope_theta"},
                                                {"indexed_attention", 10000, "rope_theta"},
                                                {"full_attention", 10000, "rope_theta"}};
  const auto ultrabert = two({"sliding_attention", 10000}, {"full_attention", 2560000});
  const auto mellum = two({"full_attention", 500000}, {"sliding_attention", 10000});
  const auto laguna = two({.layer_type = "full_attention", .rope_theta = 500000, .partial = 0.5},
                          {.layer_type = "sliding_attention", .rope_theta = 10000, .partial = 1});
  const auto mimo = two({.layer_type = "full_attention", .rope_theta = 5e6, .partial = 0.334},
                        {.layer_type = "sliding_attention", .rope_theta = 10000, .partial = 0.334});
  const auto zaya = two({.layer_type = "hybrid", .rope_theta = 5e6, .partial = 0.5},
                        {.layer_type = "hybrid_sliding", .rope_theta = 10000, .partial = 0.5});
  const auto neomme =
      two({.layer_type = "full_attention", .rope_theta = 1e6, .theta_field = "rope_theta", .partial = 0.25},
          {.layer_type = "sliding_attention", .rope_theta = 10000, .theta_field = "rope_theta", .partial = 1});
  const HeadShare memory = {.divisor_field = "memory_attention_downsample_rate"};
  const auto lfm3 =
      two({"sliding_attention", 10000},
          {.layer_type = "full_attention", .rope_theta = 1e6, .rope_type = "proportional", .partial = 0.5});
  const auto deepseek_v4 = two({.layer_type = "main", .rope_theta = 10000, .partial = 0.125},
                               {.layer_type = "compress", .rope_theta = 160000, .partial = 0.125});
  // Layer types that these lists omit have no block by default: no rotary embedding.
  const std::vector<LayerDefaults> beam = {{"sliding_attention", 10000}};
  const std::vector<LayerDefaults> step3p5 = {{"full_attention", 10000}};

  // clang-format off
  return {
      // Like Llama: half-split, eager precision, the whole head rotates.
      {.name = "apertus", .theta = 1.2e7, .block = Llama3(1.2e7, 8, 8192, 1, 4)},
      {.name = "arcee"},
      {.name = "aria_text", .width = {4096, 32}},
      {.name = "bitnet", .theta = 500000},
      {.name = "chameleon"},
      {.name = "csm", .theta = 500000},
      {.name = "csm_depth_decoder_model", .theta = 500000, .width = {1024, 8}},
      {.name = "cwm", .theta = 1e6, .block = Llama3(1e6, 16, 8192, 1, 4), .head_dim = 128},
      {.name = "dbrx"},
      {.name = "deepseek_ocr2_encoder", .width = {4096, 32}},
      {.name = "deepseek_ocr2_text", .width = {4096, 32}},
      {.name = "dia_decoder", .head_dim = 128},
      {.name = "dia_encoder", .head_dim = 128},
      {.name = "diffllama"},
      {.name = "doge"},
      {.name = "dots1"},
      {.name = "emu3_text_model", .theta = 1e6, .width = {4096, 32}},
      {.name = "esmc", .width = {2560, 40}},
      {.name = "eurobert"},
      {.name = "falcon_h1"},
      {.name = "gemma", .head_dim = 256},
      {.name = "gemma2", .head_dim = 256},
      {.name = "gpt_oss", .theta = 150000, .block = gpt_oss, .head_dim = 64},
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
      {.name = "jetmoe", .head_dim_field = "kv_channels", .head_dim = 128},
      {.name = "jina_embeddings_v3", .theta = 20000},
      {.name = "kyutai_speech_to_text"},
      {.name = "lasr_encoder", .width = {512, 8}},
      {.name = "lfm2", .theta = 1e6, .width = {2560, 32}},
      {.name = "lfm2_moe", .theta = 1e6},
      {.name = "llama", .width = {4096, 32}},
      {.name = "mimi", .width = {512, 8}},
      {.name = "mimi_decoder", .width = {512, 8}},
      {.name = "mimi_encoder", .width = {512, 8}},
      {.name = "minimax", .theta = 1e6},
      {.name = "ministral"},
      {.name = "ministral3", .block = ministral3, .head_dim = 128, .query_scale_field = kLlama4Scaling},
      {.name = "mistral", .width = {4096, 32}},
      {.name = "mixtral", .theta = 1e6},
      {.name = "mllama_text_model", .theta = 500000, .width = {4096, 32}},
      {.name = "molmo2_text", .head_dim = 128},
      {.name = "moshi"},
      {.name = "muse_glimmer_assistant", .theta = 500000, .head_dim = 128},
      {.name = "nanochat", .negate_angle = true},
      {.name = "neucodec", .head_dim = 64},
      {.name = "nomic_bert", .theta = 1000},
      {.name = "olmoe"},
      {.name = "phimoe", .theta = 1e6},
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
      {.name = "unlimited_ocr_text", .width = {1280, 10}},
      {.name = "vaultgemma", .head_dim = 256},
      {.name = "voxtral_realtime_encoder", .head_dim = 64},
      {.name = "voxtral_realtime_text", .width = {4096, 32}},
      {.name = "xcodec2", .head_dim = 64},

      // Part of the head rotates (partial_rotary_factor).
      {.name = "bamba", .partial = 0.5},
      {.name = "dots3_note_audio_encoder", .partial = 0.5, .width = {1280, 20}},
      {.name = "glm4_moe", .partial = 0.5},
      {.name = "glmasr_encoder", .partial = 0.5, .width = {1280, 20}},
      {.name = "gpt_neox", .theta_field = "rotary_emb_base", .partial = 0.25, .partial_field = "rotary_pct"},
      {.name = "gpt_neox_japanese", .theta_field = "rotary_emb_base", .partial = 1, .partial_field = "rotary_pct"},
      {.name = "minimax_m2", .theta = 5e6, .partial = 1, .head_dim = 128},
      {.name = "minimax_m3_vl_text", .theta = 5e6, .partial = 1, .head_dim = 128},
      {.name = "nemotron", .partial = 0.5},
      {.name = "nemotron3_5_transcribe_asr_audio", .partial = 0.5, .width = {1280, 10}},
      {.name = "nemotron3_5_transcribe_word_timestamp", .partial = 0.5, .width = {1280, 16}},
      {.name = "nemotron3_diarization_audio", .partial = 1, .width = {512, 8}},
      {.name = "persimmon", .partial = 0.5, .width = {4096, 64}},
      {.name = "phi", .partial = 0.5},
      {.name = "phi3", .partial = 1, .original_length = 4096},
      {.name = "phi4_multimodal", .partial = 1, .original_length = 4096},
      {.name = "qwen3_next", .partial = 0.25, .head_dim = 256, .pattern = kLinear4},
      {.name = "recurrent_gemma", .partial = 0.5},
      {.name = "solar_open", .theta = 1e6, .partial = 1, .head_dim = 128},
      {.name = "stablelm", .partial = 0.25},

      // Interleaved pairing.
      {.name = "blt_global_transformer", .pairing = kInter, .theta = 500000, .width = {2048, 16}},
      {.name = "blt_local_decoder", .pairing = kInter, .theta = 500000, .width = {1024, 16}},
      {.name = "blt_local_encoder", .pairing = kInter, .theta = 500000, .width = {1024, 16}},
      {.name = "blt_patcher", .pairing = kInter, .width = {768, 12}},
      {.name = "glm", .pairing = kInter, .partial = 0.5, .head_dim = 128},
      {.name = "glm4", .pairing = kInter, .partial = 0.5, .head_dim = 128},
      {.name = "helium", .pairing = kInter, .theta = 100000, .head_dim = 128},
      {.name = "moonshine", .pairing = kInter, .partial = 0.9},
      {.name = "moonshine_streaming", .pairing = kInter, .partial = 0.8},
      {.name = "openai_privacy_filter", .pairing = kInter, .theta = 150000, .block = gpt_oss, .head_dim = 64},
      {.name = "pe_audio_encoder", .pairing = kInter, .theta = 20000, .head_dim = 128},
      {.name = "pe_audio_video_encoder", .pairing = kInter, .theta = 20000, .head_dim = 128},
      {.name = "pe_video_encoder", .pairing = kInter, .theta = 20000, .head_dim = 128},

      // Tables are rounded to the tensor's type, products are not.
      {.name = "cohere", .pairing = kInter, .precision = kVllm, .theta = 500000},
      {.name = "evolla", .precision = kVllm, .theta = 500000},

      // Tables stay float32.
      {.name = "ernie4_5", .pairing = kInter, .precision = kF32, .theta = 500000, .head_dim = 128},
      {.name = "ernie4_5_moe", .pairing = kInter, .precision = kF32, .theta = 500000},
      {.name = "flex_olmo", .precision = kF32, .theta = 500000},
      {.name = "olmo", .precision = kF32},
      {.name = "olmo2", .precision = kF32},
      {.name = "olmo_hybrid", .precision = kF32},

      // Rotary embedding on some layers only.
      {.name = "afmoe", .head_dim = 128, .layers = kSlidingOnly, .pattern = {4, "global_attn_every_n_layers"}},
      {.name = "cohere2", .pairing = kInter, .precision = kVllm, .width = {8192, 64}, .layers = kSlidingOnly, .pattern = {4}},
      {.name = "cohere2_moe", .pairing = kInter, .precision = kVllm, .head_dim = 128, .layers = kSlidingOnly, .pattern = {4}},
      {.name = "exaone4", .width = {4096, 32}, .layers = kSlidingOnlyIfWindow, .pattern = {4}},
      {.name = "exaone_moe", .layers = kSlidingOnlyIfWindow, .pattern = {4}},
      {.name = "flint", .head_dim = 128, .layers = kSlidingOnly},
      {.name = "granite_swa", .layers = kThetaList},
      {.name = "granitemoe_swa", .layers = kThetaList},
      {.name = "kolibri1", .head_dim = 128, .layers = kSlidingOnlyIfWindow, .pattern = {5, ""}},
      {.name = "llama4_text", .pairing = kInter, .precision = kF32, .theta = 500000, .head_dim = 128, .layers = kNoRopeList},
      {.name = "muse_glimmer_text", .head_dim = 128, .layers = kThetaList, .pattern = {4}},
      {.name = "muse_spark_text", .block = muse_spark, .head_dim = 64, .layers = kThetaList, .pattern = {4}},
      {.name = "smollm3", .theta = 2e6, .layers = kNoRopeList},

      // One block per layer type.
      {.name = "beam", .precision = kF32, .head_dim = 128, .layers = kByType, .by_layer = beam},
      {.name = "cohere_compass_text", .layers = kByType, .mrope = kThirds, .sections = {24, 20, 20}},
      {.name = "deepseek_v4", .pairing = kInter, .precision = kVllm, .partial = 0.125, .head_dim = 512, .layers = kByType, .by_layer = deepseek_v4, .note = kLastRotate},
      {.name = "diffusion_gemma_text", .partial = 1, .head_dim = 256, .layers = kByType, .pattern = {6}, .by_layer = gemma4},
      {.name = "dots3_note_text", .pairing = kInter, .leaves = kHalf, .head_dim = 64, .mla = true, .layers = kByTypeFilled, .by_layer = dots3},
      {.name = "embedding_gemma2_text", .head_dim = 256, .layers = kByType, .pattern = {6}, .by_layer = gemma4},
      {.name = "gemma3_text", .head_dim = 256, .layers = kByTypeFilled, .pattern = {6}, .by_layer = gemma3},
      {.name = "gemma3n_text", .head_dim = 256, .layers = kByTypeFilled, .by_layer = gemma3},
      {.name = "gemma4_text", .head_dim = 256, .layers = kByType, .pattern = {6}, .by_layer = gemma4},
      {.name = "gemma4_unified_text", .head_dim = 256, .layers = kByType, .pattern = {6}, .by_layer = gemma4},
      {.name = "laguna", .partial = 1, .head_dim = 128, .layers = kByType, .by_layer = laguna},
      {.name = "lfm3", .precision = kF32, .head_dim = 128, .layers = kByType, .by_layer = lfm3},
      {.name = "mellum", .partial = 1, .head_dim = 128, .layers = kByType, .by_layer = mellum},
      {.name = "mimo_v2_flash", .partial = 1, .head_dim = 192, .layers = kByType, .by_layer = mimo},
      {.name = "modernbert", .precision = kVllm, .width = {768, 12}, .layers = kByTypeFilled, .by_layer = modernbert},
      {.name = "modernbert-decoder", .precision = kVllm, .layers = kByTypeFilled, .by_layer = modernbert},
      {.name = "olmo3", .precision = kF32, .layers = kByTypeFilled, .pattern = {4}, .by_layer = olmo3},
      {.name = "step3p5", .partial = 1, .head_dim = 128, .layers = kByType, .by_layer = step3p5},
      {.name = "t5gemma2_decoder", .head_dim = 256, .layers = kByTypeFilled, .pattern = {6}, .by_layer = gemma3},
      {.name = "t5gemma2_text", .head_dim = 256, .layers = kByTypeFilled, .pattern = {6}, .by_layer = gemma3},
      {.name = "ultrabert", .width = {4096, 32}, .layers = kByType, .pattern = {3, ""}, .by_layer = ultrabert},
      {.name = "zaya", .partial = 1, .head_dim = 128, .layers = kByType, .by_layer = zaya},

      // Multi-head latent attention.
      {.name = "axk1", .pairing = kInter, .leaves = kHalf, .reads_interleave = true, .head_dim = 64, .mla = true},
      {.name = "axk2", .pairing = kInter, .leaves = kHalf, .head_dim = 32, .mla = true},
      {.name = "bailing_hybrid", .pairing = kInter, .leaves = kHalf, .theta = 6e6, .head_dim = 64, .mla = true, .pattern = {4, "layer_group_size", "linear_attention"}},
      {.name = "deepseek_v2", .pairing = kInter, .precision = kF32, .head_dim = 64, .mla = true},
      {.name = "deepseek_v3", .pairing = kInter, .leaves = kHalf, .reads_interleave = true, .head_dim = 64, .mla = true},
      {.name = "deepseek_v32", .pairing = kInter, .leaves = kHalf, .head_dim = 64, .mla = true},
      {.name = "glm4_moe_lite", .pairing = kInter, .leaves = kHalf, .reads_interleave = true, .partial = 1, .head_dim = 64, .mla = true},
      {.name = "glm_moe_dsa", .pairing = kInter, .leaves = kHalf, .head_dim = 64, .mla = true},
      {.name = "hy_v4", .head_dim = 64, .mla = true},
      {.name = "longcat_flash", .pairing = kInter, .leaves = kHalf, .theta = 1e7, .head_dim = 64, .mla = true},
      {.name = "minicpm3", .head_dim = 32, .mla = true},
      {.name = "mistral4", .pairing = kInter, .leaves = kHalf, .reads_interleave = true, .block = mistral4, .head_dim = 64, .mla = true, .query_scale_field = kLlama4Scaling},
      {.name = "mistral_large4_text", .pairing = kInter, .leaves = kHalf, .block = mistral_large4, .head_dim = 64, .mla = true, .layers = kNoRopeList},
      {.name = "youtu", .pairing = kInter, .leaves = kHalf, .reads_interleave = true, .head_dim = 64, .mla = true},

      // Several axes (M-RoPE).
      {.name = "cosmos3_edge_text", .theta = 1e8, .head_dim = 128, .mrope = kThirds, .sections = {24, 20, 20}},
      {.name = "ernie4_5_vl_moe_text", .pairing = kInter, .precision = kF32, .theta = 500000, .width = {2560, 20}, .mrope = kErnie, .sections = {22, 22, 20}},
      {.name = "glm4v_moe_text", .partial = 0.5, .width = {4096, 96}, .mrope = kContig, .sections = {8, 12, 12}},
      {.name = "glm4v_text", .pairing = kInter, .partial = 1, .width = {4096, 32}, .mrope = kContig, .sections = {8, 12, 12}},
      {.name = "glm_image_text", .partial = 1, .width = {4096, 32}, .mrope = kContig, .sections = {8, 12, 12}},
      {.name = "glm_ocr_text", .pairing = kInter, .partial = 1, .width = {1024, 16}, .mrope = kContig, .sections = {8, 12, 12}},
      {.name = "neomme", .partial = 1, .partial_field = "", .head_dim = 64, .layers = kByTypeFilled, .pattern = {.every = 6, .field = "", .last = true}, .by_layer = neomme, .mrope = kErnie, .note = kRowColumn},
      {.name = "paddleocr_vl_text", .theta = 500000, .head_dim = 128, .mrope = kContig, .sections = {16, 24, 24}},
      {.name = "qwen2_5_omni_talker", .theta = 1e6, .head_dim = 128, .mrope = kContig, .sections = {16, 24, 24}},
      {.name = "qwen2_5_omni_text", .theta = 1e6, .width = {3584, 28}, .mrope = kContig, .sections = {16, 24, 24}},
      {.name = "qwen2_5_vl_text", .theta = 1e6, .width = {8192, 64}, .mrope = kContig, .sections = {16, 24, 24}},
      {.name = "qwen2_vl_text", .theta = 1e6, .width = {8192, 64}, .mrope = kContig, .sections = {16, 24, 24}},
      {.name = "qwen3_5_moe_text", .partial = 0.25, .head_dim = 256, .pattern = kLinear4, .mrope = kThirds, .sections = {11, 11, 10}},
      {.name = "qwen3_5_text", .partial = 0.25, .head_dim = 256, .pattern = kLinear4, .mrope = kThirds, .sections = {11, 11, 10}},
      {.name = "qwen3_omni_moe_talker_text", .mrope = kThirds, .sections = {24, 20, 20}},
      {.name = "qwen3_omni_moe_text", .theta = 1e6, .width = {2048, 28}, .mrope = kThirds, .sections = {24, 20, 20}},
      {.name = "qwen3_vl_moe_text", .theta = 500000, .width = {2048, 16}, .mrope = kThirds, .sections = {24, 20, 20}},
      {.name = "qwen3_vl_text", .theta = 500000, .head_dim = 128, .mrope = kThirds, .sections = {24, 20, 20}},
      {.name = "qwen4_exp_text", .partial = 1, .head_dim = 256, .mrope = kThirds, .sections = {11, 11, 10}},

      // Axial rotary embedding. Positions of an image are (h, w) unless noted.
      {.name = "cohere_compass_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}},
      {.name = "dinov3_vit", .scheme = kAxial, .theta = 100, .width = {384, 6}, .note = kCentres},
      {.name = "dots3_note_vision_encoder", .scheme = kAxial, .precision = kF32, .width = {1536, 24}},
      {.name = "eomt_dinov3", .scheme = kAxial, .theta = 100, .note = kCentres},
      {.name = "edgetam_video", .scheme = kAxial, .pairing = kInter, .precision = kF32, .theta_field = "memory_attention_rope_theta", .hidden_size_field = "memory_attention_hidden_size", .share = memory, .note = kMemory},
      {.name = "efficientloftr", .scheme = kAxial, .pairing = kInter, .precision = kVllm, .head_dim_field = "hidden_size", .head_dim = 256, .alternating = true, .note = kNextOfRows},
      {.name = "ernie4_5_vl_moe_vision", .scheme = kAxial, .precision = kF32, .width = {1280, 16}},
      {.name = "exaone4_5_vision", .scheme = kAxial, .precision = kF32, .width = {3584, 16}},
      {.name = "gemma4_vision", .scheme = kAxial, .theta = 100, .head_dim = 64, .own_halves = true, .note = kGemma4},
      {.name = "glm4v_moe_vision", .scheme = kAxial, .precision = kF32, .width = {1536, 12}},
      {.name = "glm4v_vision", .scheme = kAxial, .precision = kF32, .width = {1536, 12}},
      {.name = "glm5_next_vision", .scheme = kAxial, .precision = kF32, .width = {1024, 16}},
      {.name = "glm_ocr_vision", .scheme = kAxial, .precision = kF32, .width = {1024, 16}},
      {.name = "inkling2_vision", .scheme = kAxial, .pairing = kInter, .precision = kF32, .width = {1024, 16}, .note = kColumnsFirst},
      {.name = "kimi_k25_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}, .alternating = true, .note = kColumnsFirst},
      {.name = "lfm3_vl_vision", .scheme = kAxial, .precision = kF32, .theta = 1e6, .width = {1024, 16}},
      {.name = "llama4_vision_model", .scheme = kAxial, .pairing = kInter, .precision = kF32, .width = {768, 16}, .note = kFromOne},
      {.name = "minimax_m3_vl_vision", .scheme = kAxial, .width = {1280, 16}, .axes = 3},
      {.name = "mlcd", .scheme = kAxial, .precision = kF32},
      {.name = "mlcd_vision_model", .scheme = kAxial, .precision = kF32},
      {.name = "muse_glimmer_vision", .scheme = kAxial, .precision = kVllm, .width = {1536, 16}},
      {.name = "muse_spark_vision", .scheme = kAxial, .precision = kVllm, .width = {1536, 16}},
      {.name = "paddleocr_vl_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}},
      {.name = "pixtral", .scheme = kAxial, .width = {1024, 16}, .second_start = 0.5},
      {.name = "qwen2_5_omni_vision_encoder", .scheme = kAxial, .precision = kF32, .width = {3584, 16}},
      {.name = "qwen2_5_vl_vision", .scheme = kAxial, .precision = kF32, .width = {3584, 16}},
      {.name = "qwen2_vl_vision", .scheme = kAxial, .precision = kF32, .hidden_size_field = "embed_dim", .width = {1280, 16}},
      {.name = "qwen3_5_moe_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}},
      {.name = "qwen3_5_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}},
      {.name = "qwen3_omni_moe_vision_encoder", .scheme = kAxial, .precision = kF32, .width = {1152, 16}},
      {.name = "qwen3_vl_moe_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}},
      {.name = "qwen3_vl_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}},
      {.name = "qwen4_exp_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}},
      {.name = "sam2_video", .scheme = kAxial, .pairing = kInter, .precision = kF32, .theta_field = "memory_attention_rope_theta", .hidden_size_field = "memory_attention_hidden_size", .share = memory, .note = kMemory},
      {.name = "sam3_tracker_video", .scheme = kAxial, .pairing = kInter, .precision = kF32, .theta_field = "memory_attention_rope_theta", .hidden_size_field = "memory_attention_hidden_size", .width = {256, 1}, .share = memory, .note = kMemory},
      {.name = "sam3_vit_model", .scheme = kAxial, .pairing = kInter, .precision = kF32, .width = {1024, 16}},
      {.name = "sapiens2", .scheme = kAxial, .theta = 100, .note = kCentres},
      {.name = "step3p5_vision", .scheme = kAxial, .precision = kF32, .width = {1536, 16}, .note = kColumnsFirst},
      {.name = "video_llama_3_vision", .scheme = kAxial, .precision = kF32, .width = {768, 12}},

      // Rotary embedding only if a field selects it.
      {.name = "clvp_encoder", .precision = kF32, .theta_field = "", .hidden_size_field = "projection_dim", .width = {768, 12}, .share = {.divisor = 2, .least = 32}, .only_if = {"use_rotary_embedding", "true", true}, .note = kValuesToo},
      {.name = "esm", .precision = kVllm, .only_if = {"position_embedding_type", "rotary"}},
      {.name = "granitemoehybrid", .only_if = {"position_embedding_type", "rope"}},
      {.name = "wav2vec2-conformer", .precision = kF32, .theta_field = "rotary_embedding_base", .only_if = {"position_embeddings_type", "rotary"}, .terms = Terms::kConformerByType, .position_type = "relative"},
      {.name = "wav2vec2-bert", .precision = kF32, .theta_field = "rotary_embedding_base", .only_if = {"position_embeddings_type", "rotary"}, .terms = Terms::kConformerByType, .position_type = "relative_key"},
      {.name = "zamba2", .head_dim_field = "attention_head_dim", .only_if = {"use_mem_rope", "true"}},

      // Rotated width from rotary_dim, or the whole head (RoFormer).
      {.name = "codegen", .pairing = kInter, .head_dim_field = "rotary_dim", .head_dim = 64},
      {.name = "gptj", .pairing = kInter, .head_dim_field = "rotary_dim", .head_dim = 64},
      {.name = "roformer", .pairing = kInter, .precision = kNumpyTables},

      // Biases within windows.
      {.name = "beit", .scheme = kBeit},
      {.name = "clap_audio_model", .scheme = kSwin, .window = 8},
      {.name = "data2vec-vision", .scheme = kBeit},
      {.name = "donut-swin", .scheme = kSwin},
      {.name = "maskformer-swin", .scheme = kSwin},
      {.name = "swin", .scheme = kSwin},
      {.name = "swin2sr", .scheme = kSwinV2, .window = 8},
      {.name = "swinv2", .scheme = kSwinV2},

      // ALiBi, Falcon (ALiBi or rotary), and T5 buckets.
      {.name = "bloom", .scheme = kBloomAlibi},
      {.name = "falcon", .scheme = kFalcon},
      {.name = "mpt", .scheme = kMptAlibi},
      {.name = "cpmant", .scheme = kT5, .one_stack = OneStack{.scales_scores = true, .num_buckets = 512, .max_distance = 2048, .buckets_field = "position_bias_num_buckets", .distance_field = "position_bias_max_distance"}, .note = "the table's rows after num_buckets are for tokens of different segments; the caller must look these up"},
      {.name = "longt5", .scheme = kT5},
      {.name = "mt5", .scheme = kT5},
      {.name = "pix2struct_text_model", .scheme = kT5, .one_stack = OneStack{.bidirectional = false}},
      {.name = "pop2piano", .scheme = kT5},
      {.name = "switch_transformers", .scheme = kT5},
      {.name = "t5", .scheme = kT5},
      {.name = "udop", .scheme = kT5, .encoder_biases_field = "relative_bias_args"},
      {.name = "umt5", .scheme = kT5},
      {.name = "wavlm", .scheme = kT5, .one_stack = OneStack{.scales_scores = true, .num_buckets = 320, .max_distance = 800, .buckets_field = "num_buckets", .distance_field = "max_bucket_distance"}, .note = "each layer multiplies the bias by a gate computed from its queries; the caller must do this"},

      // Composite files: the field of each part, and its model_type if the part has none.
      Composite("aria", {{"text_config", "aria_text"}}),
      Composite("audioflamingo3", {{"text_config", "qwen2"}}),
      Composite("aya_vision", {{"text_config", "cohere2"}}),
      Composite("blt", {{"patcher_config", "blt_patcher"}, {"encoder_config", "blt_local_encoder"}, {"decoder_config", "blt_local_decoder"}, {"global_config", "blt_global_transformer"}}),
      Composite("chmv2", {{"backbone_config", "dinov3_vit"}}),
      Composite("clvp", {{"text_config", "clvp_encoder"}, {"speech_config", "clvp_encoder"}, {"decoder_config", "clvp_decoder"}}),
      Composite("cohere2_vision", {{"text_config", "cohere2"}}),
      Composite("cohere_compass", {{"vision_config", "cohere_compass_vision"}}),
      Composite("colmodernvbert", {{"vlm_config", "modernvbert"}}),
      Composite("colpali", {{"vlm_config", "paligemma"}}),
      Composite("colqwen2", {{"vlm_config", "qwen2_vl"}}),
      Composite("cosmos3_edge", {{"text_config", "cosmos3_edge_text"}, {"vision_config", "cosmos3_edge_vision"}}),
      Composite("cosmos3_omni", {{"vision_config", "qwen3_vl_vision"}, {"text_config", "qwen3_vl_text"}}),
      Composite("deepseek_ocr2", {{"vision_config", "deepseek_ocr2_vision"}, {"text_config", "deepseek_ocr2_text"}}),
      Composite("deepseek_ocr2_vision", {{"encoder_config", "deepseek_ocr2_encoder"}}),
      Composite("deepseek_vl", {{"text_config", "llama"}}),
      Composite("deepseek_vl_hybrid", {{"text_config", "llama"}}),
      Composite("dia", {{"encoder_config", "dia_encoder"}, {"decoder_config", "dia_decoder"}}),
      Composite("diffusion_gemma", {{"text_config", "diffusion_gemma_text"}, {"vision_config", "gemma4_vision"}}),
      Composite("dots3_note", {{"text_config", "dots3_note_text"}, {"vision_config", "dots3_note_vision_encoder"}, {"audio_config", "dots3_note_audio_encoder"}}),
      Composite("embedding_gemma2", {{"text_config", "embedding_gemma2_text"}, {"vision_config", "gemma4_vision"}}),
      Composite("emu3", {{"text_config", "emu3_text_model"}}),
      Composite("ernie4_5_vl_moe", {{"vision_config", "ernie4_5_vl_moe_vision"}, {"text_config", "ernie4_5_vl_moe_text"}}),
      Composite("esmfold2", {{"esmc_config", "esmc"}}),
      Composite("exaone4_5", {{"vision_config", "exaone4_5_vision"}, {"text_config", "exaone4"}}),
      Composite("fast_vlm", {{"text_config", "qwen2"}}),
      Composite("fun_asr_nano", {{"text_config", "qwen3"}}),
      Composite("fuyu", {{"text_config", "persimmon"}}),
      Composite("gemma3", {{"text_config", "gemma3_text"}}),
      Composite("gemma3n", {{"text_config", "gemma3n_text"}}),
      Composite("gemma4", {{"text_config", "gemma4_text"}, {"vision_config", "gemma4_vision"}}),
      Composite("glm46v", {{"text_config", "glm4v_text"}, {"vision_config", "glm4v_vision"}}),
      Composite("glm4v", {{"vision_config", "glm4v_vision"}, {"text_config", "glm4v_text"}}),
      Composite("glm4v_moe", {{"vision_config", "glm4v_moe_vision"}, {"text_config", "glm4v_moe_text"}}),
      Composite("glm5_next", {{"vision_config", "glm5_next_vision"}}),
      Composite("glm_image", {{"text_config", "glm_image_text"}}),
      Composite("glm_ocr", {{"vision_config", "glm_ocr_vision"}, {"text_config", "glm_ocr_text"}}),
      Composite("glmasr", {{"text_config", "llama"}, {"audio_config", "glmasr_encoder"}}),
      Composite("glmga", {{"text_config", "glm4v_text"}, {"vision_config", "glm4v_vision"}}),
      Composite("got_ocr2", {{"text_config", "qwen2"}}),
      Composite("granite4_vision", {{"text_config", "granite4_vision_text"}}),
      Composite("granite_docling", {{"text_config", "granite_docling_text"}, {"vision_config", "granite_docling_vision"}}),
      Composite("granite_speech", {{"text_config", "granite"}}),
      Composite("granite_speech_plus", {{"text_config", "granite"}}),
      Composite("hyperclovax_vision_v2", {{"vision_config", "qwen2_5_vl_vision"}, {"text_config", "hyperclovax"}}),
      Composite("idefics2", {{"text_config", "mistral"}}),
      Composite("idefics3", {{"text_config", "llama"}}),
      Composite("inkling2", {{"vision_config", "inkling2_vision"}}),
      Composite("internvl", {{"text_config", "qwen2"}}),
      Composite("janus", {{"text_config", "llama"}}),
      Composite("jev", {{"text_config", "qwen3_5_text"}}),
      Composite("kimi_k25", {{"text_config", "deepseek_v3"}, {"vision_config", "kimi_k25_vision"}}),
      Composite("lasr_ctc", {{"encoder_config", "lasr_encoder"}}),
      Composite("lfm2_vl", {{"text_config", "lfm2"}}),
      Composite("lfm3_vl", {{"vision_config", "lfm3_vl_vision"}, {"text_config", "lfm3"}}),
      Composite("lighton_ocr", {{"text_config", "qwen3"}}),
      Composite("llama4", {{"text_config", "llama4_text"}, {"vision_config", "llama4_vision_model"}}),
      Composite("llava", {{"text_config", "llama"}}),
      Composite("llava_next", {{"text_config", "llama"}}),
      Composite("llava_next_video", {{"text_config", "llama"}}),
      Composite("llava_onevision", {{"text_config", "qwen2"}}),
      Composite("minicpm_ocr", {{"text_config", "qwen3_5_text"}, {"vision_config", "minicpm_ocr_vision"}}),
      Composite("minicpmv4_6", {{"text_config", "qwen3_5_text"}}),
      Composite("minicpmv4_7", {{"text_config", "qwen3_5_text"}}),
      Composite("minimax_m3_vl", {{"text_config", "minimax_m3_vl_text"}, {"vision_config", "minimax_m3_vl_vision"}}),
      Composite("mistral3", {{"text_config", "mistral"}}),
      Composite("mistral_large4", {{"text_config", "mistral_large4_text"}}),
      Composite("mllama", {{"text_config", "mllama_text_model"}}),
      Composite("modernvbert", {{"text_config", "modernbert"}}),
      Composite("molmo2", {{"text_config", "molmo2_text"}, {"vision_config", "molmo2_vision"}}),
      Composite("moss_transcribe_diarize", {{"text_config", "qwen3"}}),
      Composite("muse_glimmer", {{"text_config", "muse_glimmer_text"}, {"vision_config", "muse_glimmer_vision"}}),
      Composite("muse_spark", {{"text_config", "muse_spark_text"}, {"vision_config", "muse_spark_vision"}}),
      Composite("musicflamingo", {{"text_config", "qwen2"}}),
      Composite("musicgen", {{"text_encoder", "t5"}, {"decoder", "musicgen_decoder"}}),
      Composite("musicgen_melody", {{"text_encoder", "t5"}, {"decoder", "musicgen_melody_decoder"}}),
      Composite("nemo_speechlm", {{"audio_config", "nemotron3_5_transcribe_audio"}, {"word_timestamp_config", "nemotron3_5_transcribe_word_timestamp"}}),
      Composite("nemotron3_5_transcribe_audio", {{"asr_config", "nemotron3_5_transcribe_asr_audio"}, {"diarization_config", "nemotron3_diarization"}}),
      Composite("nemotron3_diarization", {{"audio_config", "nemotron3_diarization_audio"}}),
      Composite("ovis2", {{"text_config", "qwen2"}}),
      Composite("paddleocr_vl", {{"vision_config", "paddleocr_vl_vision"}, {"text_config", "paddleocr_vl_text"}}, true),
      Composite("paligemma", {{"text_config", "gemma"}}),
      Composite("pe_audio", {{"text_config", "modernbert"}, {"audio_config", "pe_audio_encoder"}}),
      Composite("pe_audio_video", {{"text_config", "modernbert"}, {"audio_video_config", "pe_audio_video_encoder"}}),
      Composite("pe_video", {{"text_config", "modernbert"}, {"video_config", "pe_video_encoder"}}),
      Composite("perception_lm", {{"text_config", "llama"}}),
      Composite("pi0", {{"vlm_config", "paligemma"}, {"dit_config", "gemma"}}),
      Composite("pp_chart2table", {{"text_config", "qwen2"}, {"vision_config", "pp_chart2table_vision"}}),
      Composite("qianfan_ocr", {{"text_config", "qwen3"}}),
      Composite("qwen2_5_omni", {{"thinker_config", "qwen2_5_omni_thinker"}, {"talker_config", "qwen2_5_omni_talker"}, {"token2wav_config", "qwen2_5_omni_token2wav"}}),
      Composite("qwen2_5_omni_thinker", {{"text_config", "qwen2_5_omni_text"}, {"vision_config", "qwen2_5_omni_vision_encoder"}}),
      Composite("qwen2_5_omni_token2wav", {{"dit_config", "qwen2_5_omni_dit"}}),
      Composite("qwen2_5_vl", {{"vision_config", "qwen2_5_vl_vision"}, {"text_config", "qwen2_5_vl_text"}}, true),
      Composite("qwen2_audio", {{"text_config", "qwen2"}}),
      Composite("qwen2_vl", {{"vision_config", "qwen2_vl_vision"}, {"text_config", "qwen2_vl_text"}}, true),
      Composite("qwen3_5", {{"vision_config", "qwen3_5_vision"}, {"text_config", "qwen3_5_text"}}),
      Composite("qwen3_5_moe", {{"vision_config", "qwen3_5_moe_vision"}, {"text_config", "qwen3_5_moe_text"}}),
      Composite("qwen3_asr", {{"text_config", "qwen3"}}),
      Composite("qwen3_omni_moe", {{"thinker_config", "qwen3_omni_moe_thinker"}, {"talker_config", "qwen3_omni_moe_talker"}}),
      Composite("qwen3_omni_moe_talker", {{"text_config", "qwen3_omni_moe_talker_text"}, {"code_predictor_config", "qwen3_omni_moe_talker_code_predictor"}}),
      Composite("qwen3_omni_moe_thinker", {{"text_config", "qwen3_omni_moe_text"}, {"vision_config", "qwen3_omni_moe_vision_encoder"}}),
      Composite("qwen3_vl", {{"vision_config", "qwen3_vl_vision"}, {"text_config", "qwen3_vl_text"}}),
      Composite("qwen3_vl_moe", {{"vision_config", "qwen3_vl_moe_vision"}, {"text_config", "qwen3_vl_moe_text"}}),
      Composite("qwen4_exp", {{"vision_config", "qwen4_exp_vision"}, {"text_config", "qwen4_exp_text"}}),
      Composite("sam3", {{"vision_config", "sam3_vision_model"}}),
      Composite("sam3_lite_text", {{"vision_config", "sam3_vision_model"}, {"text_config", "sam3_lite_text_text_model"}}),
      Composite("sam3_tracker", {{"vision_config", "sam3_vision_model"}}),
      Composite("sam3_video", {{"detector_config", "sam3"}, {"tracker_config", "sam3_tracker_video"}}),
      Composite("sam3_vision_model", {{"backbone_config", "sam3_vit_model"}}),
      Composite("shieldgemma2", {{"text_config", "gemma3_text"}}),
      Composite("smolvlm", {{"text_config", "llama"}}),
      Composite("step3p7", {{"vision_config", "step3p5_vision"}, {"text_config", "step3p5"}}),
      Composite("t5gemma", {{"encoder", "t5_gemma_module"}, {"decoder", "t5_gemma_module"}}),
      Composite("t5gemma2", {{"encoder", "t5gemma2_encoder"}, {"decoder", "t5gemma2_decoder"}}),
      Composite("t5gemma2_encoder", {{"text_config", "t5gemma2_text"}}),
      Composite("ultravbert", {{"text_config", "ultrabert"}}),
      Composite("unlimited_ocr", {{"text_config", "unlimited_ocr_text"}, {"vision_config", "unlimited_ocr_vision"}}),
      Composite("vibevoice", {{"text_config", "qwen2"}}),
      Composite("vibevoice_asr", {{"text_config", "qwen2"}}),
      Composite("video_llama_3", {{"text_config", "qwen2"}, {"vision_config", "video_llama_3_vision"}}),
      Composite("video_llava", {{"text_config", "llama"}}),
      Composite("vipllava", {{"text_config", "llama"}}),
      Composite("voxtral", {{"text_config", "llama"}}),
      Composite("voxtral_realtime", {{"text_config", "voxtral_realtime_text"}, {"audio_config", "voxtral_realtime_encoder"}}),
  };
  // clang-format on
}

}  // namespace

const std::vector<ModelType>& ModelTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeModelTypes());
  return types;
}

std::vector<const ModelType*> AllModelTypes() {
  std::vector<const ModelType*> all;
  for (const auto* list : {&ModelTypes(), &WeightedTypes(), &LearnedTypes(), &SineTypes(), &OtherTypes()}) {
    for (const ModelType& type : *list) all.push_back(&type);
  }
  return all;
}

const ModelType* FindModelType(std::string_view model_type) {
  static const auto& by_name = *new std::map<std::string_view, const ModelType*>([] {
    std::map<std::string_view, const ModelType*> names;
    for (const ModelType* type : AllModelTypes()) names.emplace(type->name, type);
    return names;
  }());
  const auto found = by_name.find(model_type);
  return found == by_name.end() ? nullptr : found->second;
}

}  // namespace posenc
