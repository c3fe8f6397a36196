// Model types with a rotary embedding over several axes: M-RoPE (mrope_section), or the axes of an image. Taken from
// transformers 5.24.
#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/model/class_rules.h"

namespace posenc {
namespace {

using enum Layers;
using enum Scheme;

constexpr Pairing kInter = Pairing::kInterleaved;
constexpr Precision kF32 = kF32Precision;
constexpr Precision kVllm = kVllmPrecision;
constexpr MropeOrder kContiguous = MropeOrder::kContiguous;
constexpr MropeOrder kInterleavedAxes = MropeOrder::kInterleaved;
constexpr MropeOrder kErnieAxes = MropeOrder::kErnie;
constexpr MropeOrder kByElement = MropeOrder::kElements;
constexpr LayerPattern kEvery4thIsFull = {4, "full_attention_interval", "linear_attention"};
constexpr LayerPattern kQwen4 = {.every = 4,
                                 .field = "full_attention_interval",
                                 .others = "linear_attention",
                                 .only = {"linear_attention", "full_attention", "indexed_attention"}};
constexpr LayerPattern kEvery6thAndLastAreFull = {.every = 6, .field = "", .last = true, .needs_full = true};

// SAM 2's memory attention.
constexpr std::string_view kMemoryTheta = "memory_attention_rope_theta";
constexpr std::string_view kMemoryHeads = "memory_attention_num_attention_heads";
constexpr std::string_view kMemoryWidth = "memory_attention_hidden_size";
constexpr std::string_view kMemoryRate = "memory_attention_downsample_rate";
constexpr std::string_view kMemoryAttention =
    "axis 0 of the positions is the column (w), axis 1 the row (h); only memory_attention rotates; object pointers "
    "are not rotated";

constexpr std::string_view kIgnoredRowColumn =
    "positions are (ignored, row, column); for text, row and column are the token's position";
constexpr std::string_view kColumnsFirst = "axis 0 of the positions is the column (w), axis 1 the row (h)";
constexpr std::string_view kPatchCentres =
    "positions are 2 pi times the patch centres' coordinates in -1 .. +1, (h, w)";
constexpr std::string_view kColumnRowOrPadding = "positions are (column, row), and (-1, -1) for padding";
constexpr std::string_view kColumnRowFromOne = "positions are (column + 1, row + 1); the class token is not rotated";
constexpr std::string_view kWholeWidth =
    "positions are (row, column) in the aggregated map, from 1; all hidden_size elements rotate as one head, before "
    "the split into heads";

constexpr std::string_view kWidthFirst =
    "positions are (token, column, row, image) with four sections, (column, row, image) with three";
constexpr std::string_view kFrameRowColumn =
    "positions are (frame, row, column) of the patches, from 0; the predictor's heads, of pred_hidden_size / "
    "pred_num_attention_heads elements, turn alike; the class computes frequencies in its weights' type, the answer in "
    "float32";
// Tables that vision towers add to their patches beside the rotation.
constexpr LearnedTable kQwen3Table = {
    .positions = 2304,
    .width = 1152,
    .positions_field = "num_position_embeddings",
    .resize = ResizeRule{
        .mode = ResizeMode::kBilinear, .align_corners = true, .operations = ResizeOperations::kGather, .block = 2}};
constexpr LearnedTable kInkling2Table = {
    .positions = 32,
    .width = 1024,
    .of = TableOf::kGrid,
    .grid_fields = {"posemb_grid_size", "posemb_grid_size"},
    .resize = ResizeRule{.mode = ResizeMode::kBilinear, .operations = ResizeOperations::kGather, .block = 2}};
constexpr LearnedTable kPaddleTable = {
    .width = 1152,
    .of = TableOf::kImage,
    .image_size = 384,
    .patch_size = 14,
    .resize = ResizeRule{.mode = ResizeMode::kBilinear, .operations = ResizeOperations::kGather}};
constexpr LearnedTable kKimiTable = {.positions = 64,
                                     .width = 1152,
                                     .of = TableOf::kGrid,
                                     .grid_fields = {"pos_emb_height", "pos_emb_width"},
                                     .resize = ResizeRule{.operations = ResizeOperations::kEmbeddingBag}};
constexpr LearnedTable kGlm4vTable = {.width = 1536,
                                      .of = TableOf::kImage,
                                      .image_size = 336,
                                      .patch_size = 14,
                                      .resize = ResizeRule{.operations = ResizeOperations::kGridSample, .block = 2}};
constexpr LearnedTable kStep3Table = {.width = 1536,
                                      .of = TableOf::kImage,
                                      .image_size = 728,
                                      .patch_size = 14,
                                      .resize = ResizeRule{.mode = ResizeMode::kBilinear}};
constexpr LearnedTable kLlama4Table = {
    .width = 768, .of = TableOf::kImage, .image_size = 448, .patch_size = 14, .tokens_after = 1};
constexpr LearnedTable kGemma4Table = {
    .positions = 10240,
    .width = 768,
    .positions_field = "position_embedding_size",
    .note = "there are two tables of this size, one for a patch's column and one for its row; both are added"};
constexpr LearnedTable kSam3Table = {
    .width = 1024,
    .of = TableOf::kImage,
    .image_size = 336,
    .patch_size = 14,
    .image_field = "pretrain_image_size",
    .note = "the model repeats the table and crops it to its image's patches: give the rows as positions"};
constexpr LearnedTable kMuseTable = {
    .positions = 32,
    .width = 1536,
    .of = TableOf::kGrid,
    .grid_fields = {"pos_emb_height", "pos_emb_height"},
    .note =
        "the model resizes the table, with zeros outside, to a grid of as many rows as the image has columns, and "
        "adds its cells in this order: no target expresses it but a square"};

// SAM 2's memory attention: the queries are narrower by a rate.
absl::StatusOr<int64_t> MemoryHead(const Part& part, int64_t hidden, int64_t heads) {
  POSENC_ASSIGN_OR_RETURN(const auto given, part.config.Integer({kMemoryRate}));
  const int64_t rate = given.value_or(1);
  if (rate >= 1) return hidden / heads / rate;
  return InvalidArgument("OUT_OF_RANGE", part.config.Path(kMemoryRate), fmt::format("{}", rate), "must be at least 1");
}

constexpr std::string_view kDotsWidths[] = {"embed_dim", "num_heads"};
constexpr std::string_view kStep3Widths[] = {"width", "heads"};

// EfficientLoFTR rotates all hidden_size elements as one head, by frequencies that it makes for a share of a head.
absl::Status CheckAggregated(Part& part, RotarySettings& settings, RopeParameters& block) {
  const int64_t hidden = *settings.head_dim, half = hidden / 2;
  POSENC_ASSIGN_OR_RETURN(const auto heads, part.config.Integer({"num_attention_heads"}));
  POSENC_ASSIGN_OR_RETURN(const auto outer, part.config.Number({"partial_rotary_factor"}));
  const double share = block.partial_rotary_factor.value_or(outer.value_or(4));
  const int64_t head_dim = heads.value_or(8) < 1 ? 0 : hidden / heads.value_or(8);
  if (std::trunc(share * static_cast<double>(head_dim)) == static_cast<double>(half)) return absl::OkStatus();
  return InvalidArgument("MISMATCH", part.config.Path("num_attention_heads"), fmt::format("{}", heads.value_or(8)),
                         fmt::format("must be 2 * partial_rotary_factor, {}: model_type \"{}\" fails otherwise",
                                     2 * share, part.type.name));
}

// V-JEPA 2 computes half-split tables and applies them to pairs of neighbours, which is not a rotation.
absl::Status PairTablesHalfSplit(Part&, RotarySettings& settings, RopeParameters&) {
  settings.table_pairing = Pairing::kHalfSplit;
  return absl::OkStatus();
}

std::vector<ModelType> MakeSeveralAxesTypes() {
  const ClassRules memory = {.head_dim = MemoryHead, .fields = {kMemoryRate}};
  // Default mrope_section of a family of models.
  const std::vector<int64_t> glm4v = {8, 12, 12};
  const std::vector<int64_t> qwen2_vl = {16, 24, 24};
  const std::vector<int64_t> qwen3_vl = {24, 20, 20};
  const std::vector<int64_t> qwen3_5 = {11, 11, 10};
  const std::vector<LayerDefaults> neomme_blocks = {
      {.layer_type = "full_attention", .rope_theta = 1e6, .theta_field = "rope_theta", .partial = 0.25},
      {.layer_type = "sliding_attention", .rope_theta = 10000, .theta_field = "rope_theta", .partial = 1}};

  const RopeParameters cosmos3_edge_default = {.rope_type = "default", .rope_theta = 1e8};

  // clang-format off
  return {
      // M-RoPE: positions of a token are (t, h, w) unless noted.
      {.name = "cohere_compass_text", .layers = kByType, .pattern = {.every = 1, .field = ""}, .mrope = kInterleavedAxes, .sections = qwen3_vl},
      {.name = "cosmos3_edge_text", .theta = 1e8, .block = cosmos3_edge_default,
       .rope_types = {"default"}, .head_dim = 128, .mrope = kInterleavedAxes, .sections = qwen3_vl},
      {.name = "ernie4_5_vl_moe_text", .pairing = kInter, .precision = kF32, .theta = 500000, .rope_types = {"default"},
       .width = {2560, 20}, .mrope = kErnieAxes, .sections = {22, 22, 20}},
      {.name = "glm4v_moe_text", .partial = 0.5, .width = {4096, 96}, .mrope = kContiguous, .sections = glm4v},
      {.name = "glm4v_text", .pairing = kInter, .partial = 1,
       .width = {4096, 32}, .mrope = kContiguous, .sections = glm4v},
      {.name = "glm_image_text", .partial = 1, .width = {4096, 32}, .mrope = kContiguous, .sections = glm4v},
      {.name = "glm_ocr_text", .pairing = kInter, .partial = 1,
       .width = {1024, 16}, .mrope = kContiguous, .sections = glm4v},
      {.name = "hunyuan_vl_text", .precision = kVllm, .width = {4096, 32}, .mrope = kByElement,
       .rules = {.block = ReadHunyuanAlpha}, .note = kWidthFirst},
      {.name = "hy_v4_vl_text", .pairing = kInter, .precision = kVllm, .head_dim = 64, .unrotated_dim = 192,
       .mrope = kInterleavedAxes, .sections = {12, 10, 10}},
      {.name = "keye_text", .original = kReleasedCode, .theta = 1e6, .head_dim = 128, .mrope = kContiguous, .sections = qwen2_vl},
      {.name = "neomme", .partial = 1, .partial_field = "",
       .head_dim = 64,
       .layers = kByTypeFilled, .pattern = kEvery6thAndLastAreFull, .by_layer = neomme_blocks,
       .mrope = kErnieAxes, .note = kIgnoredRowColumn},
      {.name = "paddleocr_vl_text", .theta = 500000, .head_dim = 128, .mrope = kContiguous, .sections = qwen2_vl},
      {.name = "qwen2_5_omni_talker", .theta = 1e6, .head_dim = 128, .mrope = kContiguous, .sections = qwen2_vl},
      {.name = "qwen2_5_omni_text", .theta = 1e6, .width = {3584, 28}, .mrope = kContiguous, .sections = qwen2_vl},
      {.name = "qwen2_5_vl_text", .theta = 1e6, .width = {8192, 64}, .mrope = kContiguous, .sections = qwen2_vl},
      {.name = "qwen2_vl_text", .theta = 1e6, .width = {8192, 64}, .mrope = kContiguous, .sections = qwen2_vl},
      {.name = "qwen3_5_moe_text", .partial = 0.25,
       .head_dim = 256, .pattern = kEvery4thIsFull, .mrope = kInterleavedAxes, .sections = qwen3_5},
      {.name = "qwen3_5_text", .partial = 0.25,
       .head_dim = 256, .pattern = kEvery4thIsFull, .mrope = kInterleavedAxes, .sections = qwen3_5},
      {.name = "qwen3_omni_moe_talker_text", .mrope = kInterleavedAxes, .sections = qwen3_vl},
      {.name = "qwen3_omni_moe_text", .theta = 1e6,
       .width = {2048, 28}, .mrope = kInterleavedAxes, .sections = qwen3_vl},
      {.name = "qwen3_vl_moe_text", .theta = 500000,
       .width = {2048, 16}, .mrope = kInterleavedAxes, .sections = qwen3_vl},
      {.name = "qwen3_vl_text", .theta = 500000, .head_dim = 128, .mrope = kInterleavedAxes, .sections = qwen3_vl},
      {.name = "qwen4_exp_text", .partial = 1, .head_dim = 256, .pattern = kQwen4, .mrope = kInterleavedAxes, .sections = qwen3_5},

      // Axes of an image: positions of a patch are (h, w) unless noted.
      {.name = "cohere_compass_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}, .learned = kQwen3Table},
      {.name = "dinov3_vit", .scheme = kAxial, .theta = 100, .block_in = BlockIn::kNowhere, .head_dim_field = "", .width = {384, 6},
       .axes = {.width_multiple = 4}, .note = kPatchCentres},
      {.name = "dots3_note_vision_encoder", .scheme = kAxial, .precision = kF32, .width = {1536, 24},
       .rules = {.adapt = ReadOlderWidths<kDotsWidths>, .fields = {"embed_dim", "num_heads"}}},
      {.name = "eomt_dinov3", .scheme = kAxial, .theta = 100, .rope_types = {"default"}, .head_dim_field = "",
       .axes = {.width_multiple = 4}, .note = kPatchCentres},
      {.name = "edgetam_video", .scheme = kAxial, .pairing = kInter, .precision = kF32, .theta_field = kMemoryTheta,
       .head_dim_field = "", .hidden_size_field = kMemoryWidth, .heads_field = kMemoryHeads, .rules = memory,
       .note = kMemoryAttention},
      {.name = "efficientloftr", .scheme = kAxial, .pairing = kInter, .precision = kVllm,
       .head_dim_field = "hidden_size", .head_dim = 256, .axes = {.alternating = true},
       .rules = {.settings = CheckAggregated}, .note = kWholeWidth},
      {.name = "ernie4_5_vl_moe_vision", .scheme = kAxial, .precision = kF32, .width = {1280, 16}},
      {.name = "exaone4_5_vision", .scheme = kAxial, .precision = kF32, .width = {3584, 16}},
      {.name = "gemma4_vision", .scheme = kAxial, .theta = 100,
       .head_dim = 64, .axes = {.own_halves = true},
       .learned = kGemma4Table, .note = kColumnRowOrPadding},
      {.name = "glm4v_moe_vision", .scheme = kAxial, .precision = kF32, .width = {1536, 12}, .learned = kGlm4vTable},
      {.name = "glm4v_vision", .scheme = kAxial, .precision = kF32, .width = {1536, 12}, .learned = kGlm4vTable},
      {.name = "glm5_next_vision", .scheme = kAxial, .precision = kF32, .width = {1024, 16}},
      {.name = "glm_ocr_vision", .scheme = kAxial, .precision = kF32, .width = {1024, 16}},
      {.name = "inkling2_vision", .scheme = kAxial, .pairing = kInter, .precision = kF32,
       .width = {1024, 16},
       .learned = kInkling2Table, .note = kColumnsFirst},
      {.name = "kimi_k25_vision", .scheme = kAxial, .precision = kF32,
       .width = {1152, 16}, .axes = {.alternating = true},
       .learned = kKimiTable, .note = kColumnsFirst},
      {.name = "keye_vision", .original = kReleasedCode, .scheme = kAxial, .precision = kF32,
       .width = {1152, 16}, .learned = kPaddleTable},
      {.name = "lfm3_vl_vision", .scheme = kAxial, .precision = kF32, .theta = 1e6, .width = {1024, 16}},
      {.name = "llama4_vision_model", .scheme = kAxial, .pairing = kInter, .precision = kF32, .head_dim_field = "",
       .width = {768, 16},
       .learned = kLlama4Table, .note = kColumnRowFromOne},
      {.name = "minimax_m3_vl_vision", .scheme = kAxial, .width = {1280, 16}, .axes = {.count = 3}},
      {.name = "mlcd", .scheme = kAxial, .precision = kF32},
      {.name = "mlcd_vision_model", .scheme = kAxial, .precision = kF32},
      {.name = "moonvit", .original = kReleasedCode, .scheme = kAxial, .pairing = kInter, .precision = kF32,
       .width = {1152, 16}, .axes = {.alternating = true}, .learned = kKimiTable, .note = kColumnsFirst},
      {.name = "muse_glimmer_vision", .scheme = kAxial, .precision = kVllm, .width = {1536, 16}, .learned = kMuseTable},
      {.name = "muse_spark_vision", .scheme = kAxial, .precision = kVllm, .width = {1536, 16}, .learned = kMuseTable},
      {.name = "paddleocr_vl_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}, .learned = kPaddleTable},
      {.name = "pixtral", .scheme = kAxial, .width = {1024, 16}, .axes = {.second_start = 0.5}},
      {.name = "qwen2_5_omni_vision_encoder", .scheme = kAxial, .precision = kF32, .width = {3584, 16}},
      {.name = "qwen2_5_vl_vision", .scheme = kAxial, .precision = kF32, .width = {3584, 16}},
      {.name = "qwen2_vl_vision", .scheme = kAxial, .precision = kF32,
       .hidden_size_field = "embed_dim", .width = {1280, 16}},
      {.name = "qwen3_5_moe_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}, .learned = kQwen3Table},
      {.name = "qwen3_5_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}, .learned = kQwen3Table},
      {.name = "qwen3_omni_moe_vision_encoder", .scheme = kAxial, .precision = kF32, .width = {1152, 16}, .learned = kQwen3Table},
      {.name = "qwen3_vl_moe_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}, .learned = kQwen3Table},
      {.name = "qwen3_vl_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}, .learned = kQwen3Table},
      {.name = "qwen4_exp_vision", .scheme = kAxial, .precision = kF32, .width = {1152, 16}, .learned = kQwen3Table},
      {.name = "sam2_video", .scheme = kAxial, .pairing = kInter, .precision = kF32, .theta_field = kMemoryTheta,
       .head_dim_field = "", .hidden_size_field = kMemoryWidth, .heads_field = kMemoryHeads, .rules = memory,
       .note = kMemoryAttention},
      {.name = "sam3_tracker_video", .scheme = kAxial, .pairing = kInter, .precision = kF32,
       .theta_field = kMemoryTheta,
       .head_dim_field = "", .hidden_size_field = kMemoryWidth, .heads_field = kMemoryHeads, .width = {256, 1}, .rules = memory,
       .note = kMemoryAttention},
      {.name = "sam3_vit_model", .scheme = kAxial, .pairing = kInter, .precision = kF32, .width = {1024, 16}, .learned = kSam3Table},
      {.name = "sapiens2", .scheme = kAxial, .theta = 100, .block_in = BlockIn::kNowhere,
       .head_dim_field = "", .axes = {.width_multiple = 4}, .note = kPatchCentres},
      {.name = "step3p5_vision", .scheme = kAxial, .precision = kF32, .width = {1536, 16},
       .rules = {.adapt = ReadOlderWidths<kStep3Widths>, .fields = {"width", "heads"}}, .learned = kStep3Table, .note = kColumnsFirst},
      {.name = "video_llama_3_vision", .scheme = kAxial, .precision = kF32, .width = {768, 12}},
      {.name = "vjepa2", .scheme = kAxial, .pairing = kInter, .theta_field = "", .block_in = BlockIn::kNowhere,
       .head_dim_field = "", .width = {1024, 16}, .axes = {.count = 3, .own_halves = true},
       .rules = {.settings = PairTablesHalfSplit}, .note = kFrameRowColumn},
  };
  // clang-format on
}

}  // namespace

const std::vector<ModelType>& SeveralAxesTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeSeveralAxesTypes());
  return types;
}

}  // namespace posenc
