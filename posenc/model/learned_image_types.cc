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
    "grid's cell at its place; the model computes the places in float32, which for some sizes gives a neighbouring row "
    "(27 x 27 patches of a 27 x 27 grid)";
constexpr std::string_view kUnusedFirstRow = "no token uses the first row";
constexpr std::string_view kSinesIfNative =
    "the table has one row per patch, row by row; if is_native is true there is no table, and the model adds a "
    "sinusoidal embedding: GenerateEmbedding.grid, MAE convention, dim hidden_size, in float64";
constexpr std::string_view kResizedOrBackbone =
    "the table has a row for a cls token, then one per patch, row by row; with a backbone_config and without is_hybrid "
    "only the backbone has positions";
constexpr std::string_view kPatchesOfTile =
    "the table has one row per patch of a tile, row by row; the connector adds a sinusoidal embedding of its own "
    "cells: GenerateEmbedding.grid, MAE convention, dim out_hidden_size, in float64";
constexpr std::string_view kClsTokensFirst = "the table has n_cls_tokens rows, then one per patch, row by row";
constexpr std::string_view kResizedAndCropped =
    "the table has one row per patch of the largest image, row by row; the model resizes it to a square as large as "
    "the "
    "image's longer side, and crops that: give the rows as positions; cls and register tokens have no row";
constexpr std::string_view kRelativeTermsBesides =
    "the table is pos_embed, row by row; the relative terms are two calls of RelativeScores.shaw with QUERY_MINUS_KEY "
    "and scale 1, one with the rows as positions, one with the columns";
constexpr std::string_view kResampled = "the table has one row per patch of the largest image, row by row";
constexpr std::string_view kFrameTable =
    "the table has a row for a cls token, then one per patch of a frame, row by row; a second table has num_frames "
    "rows, one per frame";
constexpr std::string_view kTextTableToo =
    "the table has a row for a cls token, then one per patch, row by row; padding gets zeros; the text has a table of "
    "max_position_embeddings rows";
constexpr std::string_view kPretrainedPatches =
    "the table has an unused row for a cls token, then one per pretrained patch, row by row";
constexpr std::string_view kPretrainedPatchesAndTerms =
    "the table has an unused row for a cls token, then one per pretrained patch, row by row; the relative terms are "
    "two calls of RelativeScores.shaw with "
    "QUERY_MINUS_KEY and scale 1, one with the rows as positions, one with the columns";
constexpr std::string_view kFirstRowToEachPatch = "the model adds both the patch's row and the first row to each patch";

constexpr ResizeRule kBicubic, kNearest = {.mode = ResizeMode::kNearest};
constexpr ResizeRule kOnRequest = {.on_request = true}, kAntialias = {.antialias = true};

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
      Resized(Image("altclip_vision_model", 768, 224, 32, 1), kOnRequest),
      Resized(Image("blip_2_vision_model", 1408, 224, 14, 1), kOnRequest),
      Resized(Image("blip_vision_model", 768, 384, 16, 1), kOnRequest),
      Resized(Image("bridgetower_vision_model", 768, 288, 16, 1), kOnRequest),
      Resized(Image("chinese_clip_vision_model", 768, 224, 32, 1), kOnRequest),
      Resized(Image("clip_vision_model", 768, 224, 32, 1), kOnRequest),
      Resized(Image("clipseg_vision_model", 768, 224, 32, 1), kBicubic),
      Resized(Image("deit", 768, 224, 16, 2), kOnRequest),
      Resized(Image("dinov2", 768, 224, 14, 1), kBicubic),
      Resized(Image("dinov2_with_registers", 768, 224, 16, 1), kAntialias),
      Image("eomt", 1024, 640, 16, 0),
      Resized(Image("flava_image_model", 768, 224, 16, 1), kOnRequest),
      Resized(Image("git_vision_model", 768, 224, 16, 1), kOnRequest),
      Resized(Image("groupvit_vision_model", 384, 224, 16, 0), kOnRequest),
      Resized(Image("ijepa", 768, 224, 16, 0), kOnRequest),
      Resized(Image("instructblip_vision_model", 1408, 224, 14, 1), kOnRequest),
      Resized(Image("instructblipvideo_vision_model", 1408, 224, 14, 1), kOnRequest),
      Resized(Image("internvl_vision", 1024, 448, 14, 1), kBicubic),
      Resized(Image("janus_vision_model", 1024, 384, 16, 0), kOnRequest),
      Resized(Image("kosmos_2_vision_model", 1024, 224, 14, 1), kOnRequest),
      Resized(Image("metaclip_2_vision_model", 768, 224, 32, 1), kOnRequest),
      Image("ovis2_vision", 1024, 224, 14, 0),
      Resized(Image("owlv2_vision_model", 768, 768, 16, 1), kOnRequest),
      Resized(Image("owlvit_vision_model", 768, 768, 32, 1), kOnRequest),
      Resized(Image("qianfan_ocr_vision", 1024, 448, 14, 1), kBicubic),
      Resized(Image("rf_detr_dinov2", 768, 224, 14, 1), kAntialias),
      Resized(Image("siglip_vision_model", 768, 224, 16, 0), kOnRequest),
      Resized(Image("tipsv2_vision_model", 768, 448, 14, 1), {.mode = ResizeMode::kBilinear, .antialias = true}),
      Resized(Image("unlimited_ocr_vision_encoder", 1024, 224, 14, 1), kAntialias),
      Image("videomt", 1024, 640, 16, 0),
      Resized(Image("vit", 768, 224, 16, 1), kOnRequest),
      Resized(Image("vit_msn", 768, 224, 16, 1), kOnRequest),
      Resized(Image("xclip_vision_model", 768, 224, 32, 1), kOnRequest),

      // Rows with a note to callers.
      Noted(Image("aimv2_vision_model", 1024, 224, 14, 0), kSinesIfNative),
      Noted(Resized(Image("dpt", 768, 384, 16, 1), {.mode = ResizeMode::kBilinear}), kResizedOrBackbone),
      Noted(Resized(Image("glm_image_vision", 1536, 2048, 16, 0),
                    {.mode = ResizeMode::kBilinear, .operations = ResizeOperations::kGridSample, .block = 1}), kResampled),
      Noted(Image("granite_docling_vision", 768, 512, 16, 0), kPatchesOfTile),
      Noted(Resized(Image("idefics2_vision", 768, 224, 32, 0), kNearest), kRowOfFullSizeCell),
      Noted(Resized(Image("idefics3_vision", 1152, 224, 32, 0), kNearest), kRowOfFullSizeCell),
      Noted(Resized(Image("minicpm_ocr_vision", 768, 224, 16, 0), kNearest), kRowOfFullSizeCell),
      Noted(Resized(Image("minicpmv4_6_vision", 768, 224, 16, 0), kNearest), kRowOfFullSizeCell),
      Noted(Resized(Image("minicpmv4_7_vision", 768, 224, 16, 0), kNearest), kRowOfFullSizeCell),
      Noted(Resized(Image("phi4_multimodal_vision", 1152, 448, 14, 0), kNearest), kRowOfFullSizeCell),
      Noted(Resized(Image("smolvlm_vision", 1152, 224, 32, 0), kNearest), kRowOfFullSizeCell),
      Noted(Resized(Image("timesformer", 768, 224, 16, 1), kNearest), kFrameTable),
      Noted(Resized(Image("vilt", 768, 384, 32, 1), {.mode = ResizeMode::kBilinear, .align_corners = true}),
            kTextTableToo),

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
           .image_field = "pretrain_image_size", .tokens_before = 1, .only_if = "use_absolute_position_embeddings",
           .resize = kBicubic},
       .note = kPretrainedPatches},
      {.name = "seggpt", .scheme = kRelativeTerms,
       .learned = LearnedTable{
           .width = 1024, .of = TableOf::kImage, .image_size = 224, .patch_size = 16,
           .image_field = "pretrain_image_size", .tokens_before = 1,
           .resize = kBicubic},
       .note = kPretrainedPatchesAndTerms},
      {.name = "vitdet", .scheme = kRelativeTerms,
       .learned = LearnedTable{
           .width = 768, .of = TableOf::kImage, .image_size = 224, .patch_size = 16,
           .image_field = "pretrain_image_size", .tokens_before = 1, .only_if = "use_absolute_position_embeddings",
           .resize = kBicubic},
       .note = kPretrainedPatchesAndTerms},

      // Images that are not square, several kinds of tokens, and other fields.
      {.name = "audio-spectrogram-transformer", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 768, .of = TableOf::kSpectrogram, .patch_size = 16,
           .image_field = "num_mel_bins", .tokens_before = 2}},
      {.name = "hunyuan_vl_vision", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 1152, .of = TableOf::kImage, .image_size = 2048, .patch_size = 16,
           .image_field = "max_image_size", .tokens_before = 1,
           .resize = ResizeRule{.mode = ResizeMode::kBilinear, .mode_field = "interpolate_mode"}},
       .note = kUnusedFirstRow},
      {.name = "hy_v4_vl_vision", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 1536, .of = TableOf::kImage, .image_size = 2048, .patch_size = 16,
           .image_field = "max_image_size", .tokens_before = 1,
           .resize = ResizeRule{.mode = ResizeMode::kBilinear, .added = 0.1, .mode_field = "interpolate_mode"}},
       .note = kUnusedFirstRow},
      {.name = "idefics_vision", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 768, .width_field = "embed_dim", .of = TableOf::kImage, .image_size = 224, .patch_size = 14,
           .tokens_before = 1,
           .resize = ResizeRule{.added = 0.1, .on_request = true}}},
      {.name = "mgp-str", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 768, .of = TableOf::kImage, .image_size = 32, .patch_size = 4,
           .image_width = 128, .tokens_before = 1}},
      {.name = "pixio", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 1280, .of = TableOf::kImage, .image_size = 256, .patch_size = 16,
           .tokens_before = 8, .tokens_before_field = "n_cls_tokens", .resize = kBicubic},
       .note = kClsTokensFirst},
      {.name = "radio", .scheme = kLearned,
       .learned = LearnedTable{
           .width = 1280, .of = TableOf::kImage, .image_size = 2048, .patch_size = 16,
           .image_field = "max_img_size", .resize = ResizeRule{.mode = ResizeMode::kBilinear}},
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
           .image_width = 864, .tokens_before = 1, .tokens_after = 100, .tokens_after_field = "num_detection_tokens",
           .resize = kBicubic}},
  };
  // clang-format on
}

}  // namespace

const std::vector<ModelType>& LearnedImageTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeLearnedImageTypes());
  return types;
}

}  // namespace posenc
