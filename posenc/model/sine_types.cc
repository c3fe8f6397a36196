// Model types whose config.json selects sines and cosines of positions that are added to the input. Taken from
// transformers 5.24.
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/model/model_types.h"

namespace posenc {
namespace {

using enum Scheme;
using enum SinusoidalConvention;

constexpr GridConvention kDetr = GridConvention::kDetr;

// Precision of tables that the class computes in float64.
constexpr Precision kFloat64Table = {Frequencies::kFloat64, TableDtype::kTensor, Rounding::kEachOperation};

// Whisper's decoder.
constexpr LearnedTable kWhisperTable = {
    .positions = 448, .width = 384, .width_field = "d_model", .positions_field = "max_target_positions"};

constexpr std::string_view kEncoderSines =
    "the encoder adds a sinusoidal embedding (GenerateEmbedding.sinusoidal), the decoder a learned table "
    "(GenerateEmbedding.learned)";
constexpr std::string_view kDecoderWidth =
    "this is the encoder's embedding; the decoder's has the width decoder_hidden_size: give dim and no model";
constexpr std::string_view kFirstIsOne =
    "the first token is at position 1; the model first multiplies its input by sqrt(hidden_size)";
constexpr std::string_view kPatchPositions =
    "positions count the patches; padding patches at the beginning have no position";

ModelType Sines(std::string_view name, SinusoidalConvention convention, int64_t width,
                std::string_view width_field = "d_model") {
  return {.name = name,
          .scheme = kSinusoidal,
          .sines = SineTable{.convention = convention, .width = width, .width_field = width_field}};
}

ModelType InFloat64(ModelType type) {
  type.precision = kFloat64Table;
  return type;
}

ModelType Grid(std::string_view name, SineGrid grid) {
  return {.name = name, .scheme = kSinusoidal, .grid = std::move(grid)};
}

// DETR, which adds sines only if position_embedding_type is "sine".
ModelType Detr(std::string_view name) {
  return Grid(name, {.convention = kDetr, .width = 256, .width_field = "d_model", .only_if = "sine"});
}

// DETR's sines, always added.
ModelType DetrAlways(std::string_view name, std::string_view width_field) {
  return Grid(name, {.convention = kDetr, .width = 256, .width_field = width_field});
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
  return {
      // Sines, then cosines: name, width, its field.
      InFloat64(Sines("autoformer", kHalves, 64)),
      Sines("ctrl", kHalves, 1280, "n_embd"),
      InFloat64(Sines("informer", kHalves, 64)),
      InFloat64(Sines("marian", kHalves, 1024)),
      InFloat64(Sines("pegasus", kHalves, 1024)),
      InFloat64(Sines("time_series_transformer", kHalves, 64)),
      Sines("videoprism_text_model", kHalves, 768, "hidden_size"),

      // fairseq's sines; pad_token_id is 1 by default.
      Sines("fsmt", kFairseq, 1024),
      Sines("kosmos_2_5_text_model", kFairseq, 1536, "embed_dim"),
      Sines("kosmos_2_text_model", kFairseq, 2048, "embed_dim"),
      Sines("m2m_100", kFairseq, 1024),
      Sines("nllb-moe", kFairseq, 1024),
      Sines("speech_to_text", kFairseq, 256),
      Sines("xglm", kFairseq, 1024),

      // Sines, then cosines, with Tensor2Tensor's frequencies.
      Sines("pegasus_x", kTensor2Tensor, 1024),
      Sines("qwen2_5_omni_audio_encoder", kTensor2Tensor, 1280),
      Sines("qwen3_asr_encoder", kTensor2Tensor, 1024),
      Sines("qwen3_omni_moe_audio_encoder", kTensor2Tensor, 1280),
      Sines("tipsv2_text_model", kTensor2Tensor, 768, "hidden_size"),
      {.name = "canary_decoder", .scheme = kSinusoidal,
       .sines = SineTable{.convention = kTensor2Tensor, .width = 1024, .width_field = "hidden_size", .by_width = true}},
      {.name = "fun_asr_nano_encoder", .scheme = kSinusoidal,
       .sines = SineTable{
           .convention = kTensor2Tensor, .width = 80, .width_field = "num_mel_bins",
           .times_field = "num_stacked_frames", .times = 7},
       .note = kFirstIsOne},
      {.name = "musicgen_decoder", .scheme = kSinusoidal,
       .sines = SineTable{
           .convention = kTensor2Tensor, .width = 1024, .width_field = "hidden_size", .cosines_first = true}},
      {.name = "musicgen_melody_decoder", .scheme = kSinusoidal,
       .sines = SineTable{
           .convention = kTensor2Tensor, .width = 1024, .width_field = "hidden_size", .cosines_first = true}},
      // TimesFM multiplies the frequencies by min_timescale instead of dividing, so only 1 is supported.
      {.name = "timesfm", .scheme = kSinusoidal,
       .sines = SineTable{
           .convention = kTensor2Tensor, .width = 1280, .width_field = "hidden_size",
           .max_timescale_field = "max_timescale", .one_field = "min_timescale",
           .only_if = "use_positional_embedding"},
       .note = kPatchPositions},
      {.name = "whisper", .scheme = kSinusoidal,
       .learned = kWhisperTable,
       .sines = SineTable{.convention = kTensor2Tensor, .width = 384},
       .note = kEncoderSines},

      // Masked autoencoders.
      InFloat64(Noted(Sines("videomae", kInterleaved, 768, "hidden_size"), kDecoderWidth)),
      {.name = "vit_mae", .scheme = kSinusoidal, .precision = kFloat64Table,
       .grid = SineGrid{.width = 768, .image_size = 224, .patch_size = 16, .tokens_before = 1},
       .note = kDecoderWidth},

      // DETR and its relatives.
      Detr("conditional_detr"),
      Detr("detr"),
      Detr("table-transformer"),
      DetrAlways("edgetam_vision_model", "fpn_hidden_size"),
      DetrAlways("mask2former", "hidden_dim"),
      DetrAlways("maskformer", "fpn_feature_size"),
      DetrAlways("oneformer", "hidden_dim"),
      DetrAlways("sam2_vision_model", "fpn_hidden_size"),
      {.name = "dab-detr", .scheme = kSinusoidal,
       .grid = SineGrid{
           .convention = kDetr, .width = 256,
           .temperature = 20, .temperature_fields = {"temperature_height", "temperature_width"},
           .scale_field = "sine_position_embedding_scale"}},
      {.name = "deformable_detr", .scheme = kSinusoidal,
       .grid = SineGrid{
           .convention = kDetr, .width = 256, .width_field = "d_model", .offset = -0.5, .only_if = "sine"}},
      {.name = "grounding-dino", .scheme = kSinusoidal,
       .grid = SineGrid{
           .convention = kDetr, .width = 256, .width_field = "d_model",
           .temperature = 20, .temperature_fields = {"positional_embedding_temperature"}}},
      {.name = "mm-grounding-dino", .scheme = kSinusoidal,
       .grid = SineGrid{
           .convention = kDetr, .width = 256, .width_field = "d_model",
           .temperature = 20, .temperature_fields = {"positional_embedding_temperature"}}},

      // RT-DETR's hybrid encoder and its relatives.
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
