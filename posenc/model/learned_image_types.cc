// Model types with a learned table for the patches of images, videos or spectrograms. config.json gives
// settings only: the weights come with the request. Taken from transformers 5.24.
#include <string_view>
#include <vector>

#include "posenc/model/model_types.h"

namespace posenc {
namespace {

using enum Scheme;

constexpr std::string_view kRowOfFullSizeCell =
    "patches of a full-size image use the rows in order; a patch of a smaller image uses the row of the full-size "
    "grid's cell that the model assigns to it: give these row numbers as positions";
constexpr std::string_view kUnusedFirstRow =
    "no token uses the first row; the model always resizes the other rows to its image's patches";
constexpr std::string_view kSinesIfNative =
    "the table has one row per patch, row by row; if is_native is true there is no table, and the model adds a "
    "sinusoidal embedding: GenerateEmbedding.grid, MAE convention, dim hidden_size, in float64";
constexpr std::string_view kResizedOrBackbone =
    "the table has a row for a cls token, then one per patch, row by row; the model resizes the patches' rows to its "
    "image's patches; with a backbone_config and without is_hybrid only the backbone has positions";
constexpr std::string_view kPatchesOfTile =
    "the table has one row per patch of a tile, row by row; the connector adds a sinusoidal embedding of its own "
    "cells: GenerateEmbedding.grid, MAE convention, dim out_hidden_size, in float64";
constexpr std::string_view kClsTokensFirst =
    "the table has n_cls_tokens rows, then one per patch, row by row; for an image of another size the model first "
    "resizes the patches' rows";
constexpr std::string_view kResizedAndCropped =
    "the table has one row per patch of the largest image, row by row; the model resizes and crops it to its image's "
    "patches; cls and register tokens have no row";
constexpr std::string_view kRelativeTermsBesides =
    "the table is pos_embed, row by row; the relative terms are two calls of RelativeScores.shaw with QUERY_MINUS_KEY "
    "and scale 1, one with the rows as positions, one with the columns";
constexpr std::string_view kResampled = "the model always resamples the table to its image's patches";
constexpr std::string_view kFrameTable =
    "the table has a row for a cls token, then one per patch of a frame, row by row; a second table has num_frames "
    "rows, one per frame";
constexpr std::string_view kTextTableToo =
    "the table has a row for a cls token, then one per patch, row by row; the model resizes the patches' rows to its "
    "image's patches; the text has a table of max_position_embeddings rows";
constexpr std::string_view kPretrainedPatches =
    "the table has an unused row for a cls token, then one per pretrained patch, row by row; the model resizes the "
    "patches' rows to its image's patches";
constexpr std::string_view kPretrainedPatchesAndTerms =
    "the table has an unused row for a cls token, then one per pretrained patch, row by row; the model resizes the "
    "patches' rows to its image's patches; the relative terms are two calls of RelativeScores.shaw with "
    "QUERY_MINUS_KEY and scale 1, one with the rows as positions, one with the columns";
constexpr std::string_view kFirstRowToEachPatch = "the model adds both the patch's row and the first row to each patch";

ModelType Image(std::string_view name, int64_t width, int64_t image_size, int64_t patch_size, int64_t tokens_before) {
  return {.name = name,
          .scheme = kLearned,
          .learned = LearnedTable{.width = width,
                                  .of = TableOf::kImage,
                                  .image_size = image_size,
                                  .patch_size = patch_size,
                                  .tokens_before = tokens_before}};
}

// SAM's image encoder.
ModelType Sam(std::string_view name, int64_t image_size) {
  ModelType type = Image(name, 768, image_size, 16, 0);
  type.scheme = kRelativeTerms;
  type.learned->only_if = "use_abs_pos";
  type.note = kRelativeTermsBesides;
  return type;
}

std::vector<ModelType> MakeLearnedImageTypes() {
  // clang-format off
  return {
      // Columns: name, width, image_size, patch_size, rows before those of the patches.
      Image("altclip_vision_model", 768, 224, 32, 1),
      Image("blip_2_vision_model", 1408, 224, 14, 1),
      Image("blip_vision_model", 768, 384, 16, 1),
      Image("bridgetower_vision_model", 768, 288, 16, 1),
      Image("chinese_clip_vision_model", 768, 224, 32, 1),
      Image("clip_vision_model", 768, 224, 32, 1),
      Image("clipseg_vision_model", 768, 224, 32, 1),
      Image("deit", 768, 224, 16, 2),
      Image("dinov2", 768, 224, 14, 1),
      Image("dinov2_with_registers", 768, 224, 16, 1),
      Image("eomt", 1024, 640, 16, 0),
      Image("flava_image_model", 768, 224, 16, 1),
      Image("git_vision_model", 768, 224, 16, 1),
      Image("groupvit_vision_model", 384, 224, 16, 0),
      Image("ijepa", 768, 224, 16, 0),
      Image("instructblip_vision_model", 1408, 224, 14, 1),
      Image("instructblipvideo_vision_model", 1408, 224, 14, 1),
      Image("internvl_vision", 1024, 448, 14, 1),
      Image("janus_vision_model", 1024, 384, 16, 0),
      Image("kosmos_2_vision_model", 1024, 224, 14, 1),
      Image("metaclip_2_vision_model", 768, 224, 32, 1),
      Image("ovis2_vision", 1024, 224, 14, 0),
      Image("owlv2_vision_model", 768, 768, 16, 1),
      Image("owlvit_vision_model", 768, 768, 32, 1),
      Image("qianfan_ocr_vision", 1024, 448, 14, 1),
      Image("rf_detr_dinov2", 768, 224, 14, 1),
      Image("siglip_vision_model", 768, 224, 16, 0),
      Image("tipsv2_vision_model", 768, 448, 14, 1),
      Image("unlimited_ocr_vision_encoder", 1024, 224, 14, 1),
      Image("videomt", 1024, 640, 16, 0),
      Image("vit", 768, 224, 16, 1),
      Image("vit_msn", 768, 224, 16, 1),
      Image("xclip_vision_model", 768, 224, 32, 1),

      // Rows with a note to callers.
      Noted(Image("aimv2_vision_model", 1024, 224, 14, 0), kSinesIfNative),
      Noted(Image("dpt", 768, 384, 16, 1), kResizedOrBackbone),
      Noted(Image("glm_image_vision", 1536, 2048, 16, 0), kResampled),
      Noted(Image("granite_docling_vision", 768, 512, 16, 0), kPatchesOfTile),
      Noted(Image("idefics2_vision", 768, 224, 32, 0), kRowOfFullSizeCell),
      Noted(Image("idefics3_vision", 1152, 224, 32, 0), kRowOfFullSizeCell),
      Noted(Image("minicpm_ocr_vision", 768, 224, 16, 0), kRowOfFullSizeCell),
      Noted(Image("minicpmv4_6_vision", 768, 224, 16, 0), kRowOfFullSizeCell),
      Noted(Image("minicpmv4_7_vision", 768, 224, 16, 0), kRowOfFullSizeCell),
      Noted(Image("phi4_multimodal_vision", 1152, 448, 14, 0), kRowOfFullSizeCell),
      Noted(Image("smolvlm_vision", 1152, 224, 32, 0), kRowOfFullSizeCell),
      Noted(Image("timesformer", 768, 224, 16, 1), kFrameTable),
      Noted(Image("vilt", 768, 384, 32, 1), kTextTableToo),

      // SAM's image encoder: name, image_size.
      Sam("deepseek_ocr2_sam_vision_model", 1024),
      Sam("got_ocr2_vision", 1024),
      Sam("pp_chart2table_vision", 1024),
      Sam("pp_formulanet_vision", 512),
      Sam("sam_hq_vision_model", 1024),
      Sam("sam_vision_model", 1024),
      Sam("slanext_vision", 512),
      Sam("unlimited_ocr_sam_vision_model", 1024),

      // ViTDet and its relatives: a table of the image size of pretraining, with an unused row for a cls token.
      {.name = "lw_detr_vit", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 768, .of = TableOf::kImage, .image_size = 224, .patch_size = 16,
           .image_field = "pretrain_image_size", .tokens_before = 1, .only_if = "use_absolute_position_embeddings"},
       .note = kPretrainedPatches},
      {.name = "seggpt", .scheme = kRelativeTerms,
       .learned = LearnedTable{
           .width = 1024, .of = TableOf::kImage, .image_size = 224, .patch_size = 16,
           .image_field = "pretrain_image_size", .tokens_before = 1},
       .note = kPretrainedPatchesAndTerms},
      {.name = "vitdet", .scheme = kRelativeTerms,
       .learned = LearnedTable{
           .width = 768, .of = TableOf::kImage, .image_size = 224, .patch_size = 16,
           .image_field = "pretrain_image_size", .tokens_before = 1, .only_if = "use_absolute_position_embeddings"},
       .note = kPretrainedPatchesAndTerms},

      // Images that are not square, several kinds of tokens, and other fields.
      {.name = "audio-spectrogram-transformer", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 768, .of = TableOf::kSpectrogram, .patch_size = 16,
           .image_field = "num_mel_bins", .tokens_before = 2}},
      {.name = "hunyuan_vl_vision", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 1152, .of = TableOf::kImage, .image_size = 2048, .patch_size = 16,
           .image_field = "max_image_size", .tokens_before = 1},
       .note = kUnusedFirstRow},
      {.name = "hy_v4_vl_vision", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 1536, .of = TableOf::kImage, .image_size = 2048, .patch_size = 16,
           .image_field = "max_image_size", .tokens_before = 1},
       .note = kUnusedFirstRow},
      {.name = "idefics_vision", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 768, .width_field = "embed_dim", .of = TableOf::kImage, .image_size = 224, .patch_size = 14,
           .tokens_before = 1}},
      {.name = "mgp-str", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 768, .of = TableOf::kImage, .image_size = 32, .patch_size = 4,
           .image_width = 128, .tokens_before = 1}},
      // Pixio's n_cls_tokens rows come first; tokens_after is equivalent, because only the sum sets the table's size.
      {.name = "pixio", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 1280, .of = TableOf::kImage, .image_size = 256, .patch_size = 16,
           .tokens_after = 8, .tokens_after_field = "n_cls_tokens"},
       .note = kClsTokensFirst},
      {.name = "radio", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 1280, .of = TableOf::kImage, .image_size = 2048, .patch_size = 16,
           .image_field = "max_img_size"},
       .note = kResizedAndCropped},
      {.name = "vitpose_backbone", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 768, .of = TableOf::kImage, .image_size = 256, .patch_size = 16,
           .image_width = 192, .tokens_before = 1},
       .note = kFirstRowToEachPatch},
      {.name = "vivit", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 768, .of = TableOf::kVideo, .image_size = 224, .patch_size = 16,
           .tokens_before = 1}},
      {.name = "yolos", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 768, .of = TableOf::kImage, .image_size = 512, .patch_size = 16,
           .image_width = 864, .tokens_before = 1, .tokens_after = 100, .tokens_after_field = "num_detection_tokens"}},
  };
  // clang-format on
}

}  // namespace

const std::vector<ModelType>& LearnedImageTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeLearnedImageTypes());
  return types;
}

}  // namespace posenc
