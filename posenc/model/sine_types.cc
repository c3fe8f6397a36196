// Model types whose config.json selects sines and cosines of positions that are added to the input. Taken from
// transformers 5.23.
#include "posenc/model/model_types.h"

namespace posenc {
namespace {

using enum SinusoidalConvention;

constexpr std::string_view kEncoder =
    "the encoder adds a sinusoidal embedding (GenerateEmbedding.sinusoidal), the decoder a learned table "
    "(GenerateEmbedding.learned)";
constexpr std::string_view kDecoderWidth =
    "this is the encoder's embedding; the decoder's has the width decoder_hidden_size: give dim and no model";

// Precision of tables that the class computes in float64.
constexpr Precision kFloat64Table = {Frequencies::kFloat64, TableDtype::kTensor, Rounding::kEachOperation};

ModelType Sines(std::string_view name, SinusoidalConvention convention, int64_t width,
                std::string_view width_field = "d_model") {
  return {.name = name,
          .scheme = Scheme::kSinusoidal,
          .sines = SineTable{.convention = convention, .width = width, .width_field = width_field}};
}

ModelType InFloat64(ModelType type) {
  type.precision = kFloat64Table;
  return type;
}

ModelType CosinesFirst(std::string_view name, int64_t width) {
  ModelType type = Sines(name, kTensor2Tensor, width, "hidden_size");
  type.sines->cosines_first = true;
  return type;
}

// max_timescale and scale depend on the width (NeMo).
ModelType ByWidth(std::string_view name, int64_t width) {
  ModelType type = Sines(name, kTensor2Tensor, width, "hidden_size");
  type.sines->by_width = true;
  return type;
}

ModelType FunAsrNano() {
  ModelType type = Sines("fun_asr_nano_encoder", kTensor2Tensor, 80, "num_mel_bins");
  type.sines->times_field = "num_stacked_frames";
  type.sines->times = 7;
  type.note = "the first token is at position 1; the model first multiplies its input by sqrt(hidden_size)";
  return type;
}

// TimesFM multiplies the frequencies by min_timescale instead of dividing, so only 1 is supported.
ModelType TimesFm() {
  ModelType type = Sines("timesfm", kTensor2Tensor, 1280, "hidden_size");
  type.sines->max_timescale_field = "max_timescale";
  type.sines->one_field = "min_timescale";
  type.sines->only_if = "use_positional_embedding";
  type.note = "positions count the patches; padding patches at the beginning have no position";
  return type;
}

ModelType Grid(std::string_view name, SineGrid grid) {
  return {.name = name, .scheme = Scheme::kSinusoidal, .grid = std::move(grid)};
}

ModelType Detr(std::string_view name, std::string_view width_field = "d_model", std::string_view only_if = "") {
  return Grid(name,
              {.convention = GridConvention::kDetr, .width = 256, .width_field = width_field, .only_if = only_if});
}

ModelType DetrAt(std::string_view name, double temperature, std::vector<std::string_view> fields,
                 std::string_view width_field, std::string_view scale_field = "") {
  return Grid(name, {.convention = GridConvention::kDetr,
                     .width = 256,
                     .width_field = width_field,
                     .temperature = temperature,
                     .temperature_fields = std::move(fields),
                     .scale_field = scale_field});
}

// The hybrid encoder of RT-DETR.
ModelType Hybrid(std::string_view name) {
  return InFloat64(Grid(name, {.width = 256,
                               .width_field = "encoder_hidden_dim",
                               .temperature_fields = {"positional_encoding_temperature"},
                               .rows_first = true}));
}

std::vector<ModelType> MakeSineTypes() {
  // clang-format off
  ModelType whisper = Noted(Sines("whisper", kTensor2Tensor, 384), kEncoder);
  whisper.learned = LearnedTable{.positions = 448, .width = 384, .width_field = "d_model", .positions_field = "max_target_positions"};
  ModelType deformable_detr = Detr("deformable_detr", "d_model", "sine");
  deformable_detr.grid->offset = -0.5;
  return {
      InFloat64(Sines("autoformer", kHalves, 64)),
      Sines("ctrl", kHalves, 1280, "n_embd"),
      InFloat64(Sines("informer", kHalves, 64)),
      InFloat64(Sines("marian", kHalves, 1024)),
      InFloat64(Sines("pegasus", kHalves, 1024)),
      InFloat64(Sines("time_series_transformer", kHalves, 64)),
      Sines("videoprism_text_model", kHalves, 768, "hidden_size"),

      // fairseq's sines; pad_token_id 1 by default.
      Sines("fsmt", kFairseq, 1024),
      Sines("kosmos_2_text_model", kFairseq, 2048, "embed_dim"),
      Sines("kosmos_2_5_text_model", kFairseq, 1536, "embed_dim"),
      Sines("m2m_100", kFairseq, 1024),
      Sines("nllb-moe", kFairseq, 1024),
      Sines("speech_to_text", kFairseq, 256),
      Sines("xglm", kFairseq, 1024),

      FunAsrNano(),
      Sines("pegasus_x", kTensor2Tensor, 1024),
      Sines("tipsv2_text_model", kTensor2Tensor, 768, "hidden_size"),
      Sines("qwen2_5_omni_audio_encoder", kTensor2Tensor, 1280),
      Sines("qwen3_asr_encoder", kTensor2Tensor, 1024),
      Sines("qwen3_omni_moe_audio_encoder", kTensor2Tensor, 1280),
      TimesFm(),
      ByWidth("canary_decoder", 1024),
      CosinesFirst("musicgen_decoder", 1024),
      CosinesFirst("musicgen_melody_decoder", 1024),
      whisper,

      InFloat64(Noted(Sines("videomae", kInterleaved, 768, "hidden_size"), kDecoderWidth)),
      InFloat64(Noted(Grid("vit_mae", {.width = 768, .image_size = 224, .patch_size = 16, .tokens_before = 1}), kDecoderWidth)),

      deformable_detr,
      Detr("conditional_detr", "d_model", "sine"),
      Detr("detr", "d_model", "sine"),
      Detr("edgetam_vision_model", "fpn_hidden_size"),
      Detr("mask2former", "hidden_dim"),
      Detr("maskformer", "fpn_feature_size"),
      Detr("oneformer", "hidden_dim"),
      Detr("sam2_vision_model", "fpn_hidden_size"),
      Detr("table-transformer", "d_model", "sine"),
      DetrAt("dab-detr", 20, {"temperature_height", "temperature_width"}, "hidden_size", "sine_position_embedding_scale"),
      DetrAt("grounding-dino", 20, {"positional_embedding_temperature"}, "d_model"),
      DetrAt("mm-grounding-dino", 20, {"positional_embedding_temperature"}, "d_model"),

      Hybrid("d_fine"),
      Hybrid("deimv2"),
      Hybrid("pp_doclayout_v2"),
      Hybrid("pp_doclayout_v3"),
      Hybrid("pp_doclayout_v4"),
      Hybrid("rt_detr"),
      Hybrid("rt_detr_v2"),
  };
  // clang-format on
}

}  // namespace

const std::vector<ModelType>& SineTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeSineTypes());
  return types;
}

}  // namespace posenc
