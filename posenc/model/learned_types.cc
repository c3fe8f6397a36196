// Model types with a learned table of positions, or relative keys in its place. config.json gives settings only: the
// weights come with the request. Taken from transformers 5.23; relative keys of BERT-like types, which it no longer
// has, from 4.57.
#include "posenc/model/model_types.h"

namespace posenc {
namespace {

using enum Scheme;
using enum TableStart;

// Table with the class's default number of positions and row width.
ModelType Table(std::string_view name, int64_t positions, int64_t width, std::string_view width_field = "hidden_size",
                std::string_view positions_field = "max_position_embeddings") {
  return {.name = name,
          .scheme = kLearned,
          .learned = LearnedTable{
              .positions = positions, .width = width, .width_field = width_field, .positions_field = positions_field}};
}

ModelType FromTwo(std::string_view name, int64_t positions, int64_t width,
                  std::string_view width_field = "hidden_size") {
  ModelType type = Table(name, positions, width, width_field);
  type.learned->start = kTwo;
  return type;
}

ModelType AfterPadding(std::string_view name, int64_t positions, int64_t width, int64_t padding = 1) {
  ModelType type = Table(name, positions, width);
  type.learned->start = kAfterPadding;
  type.learned->padding = padding;
  return type;
}

// Adds relative keys (Shaw), which position_embedding_type selects.
ModelType BertLike(ModelType type) {
  type.terms = Terms::kBert;
  return type;
}

ModelType Image(std::string_view name, int64_t width, int64_t image_size, int64_t patch_size, int64_t tokens_before) {
  return {.name = name,
          .scheme = kLearned,
          .learned = LearnedTable{.width = width,
                                  .of = TableOf::kImage,
                                  .image_size = image_size,
                                  .patch_size = patch_size,
                                  .tokens_before = tokens_before}};
}

// For an image of another size, each patch uses the row of a cell in the table's own grid.
ModelType Bucketed(std::string_view name, int64_t width, int64_t image_size, int64_t patch_size) {
  ModelType type = Image(name, width, image_size, patch_size, 0);
  type.note =
      "patches of a full-size image use the rows in order; a patch of a smaller image uses the row of the full-size "
      "grid's cell that the model assigns to it: give these row numbers as positions";
  return type;
}

ModelType Wide(ModelType type, int64_t image_width) {
  type.learned->image_width = image_width;
  return type;
}

ModelType Sized(ModelType type, std::string_view image_field) {
  type.learned->image_field = image_field;
  return type;
}

// SAM's image encoder.
ModelType Sam(std::string_view name, int64_t image_size = 1024) {
  ModelType type = Image(name, 768, image_size, 16, 0);
  type.scheme = kRelativeTerms;
  type.learned->only_if = "use_abs_pos";
  type.note =
      "the table is pos_embed, row by row; the relative terms are two calls of RelativeScores.shaw with "
      "QUERY_MINUS_KEY and scale 1, one with the rows as positions, one with the columns";
  return type;
}

// ViTDet types, whose table has an unused row for a cls token.
ModelType Pretrained(std::string_view name, int64_t width, std::string_view only_if) {
  ModelType type = Sized(Image(name, width, 224, 16, 1), "pretrain_image_size");
  type.learned->only_if = only_if;
  type.note =
      "the table has an unused row for a cls token, then one per pretrained patch, row by row; the model resizes the "
      "patches' rows to its image's patches";
  return type;
}

// Adds relative terms of rows and columns, like SAM's.
ModelType WithTerms(ModelType type) {
  type.scheme = kRelativeTerms;
  type.note =
      "the table has an unused row for a cls token, then one per pretrained patch, row by row; the model resizes the "
      "patches' rows to its image's patches; the relative terms are two calls of RelativeScores.shaw with "
      "QUERY_MINUS_KEY and scale 1, one with the rows as positions, one with the columns";
  return type;
}

ModelType Yolos() {
  ModelType type = Wide(Image("yolos", 768, 512, 16, 1), 864);
  type.learned->tokens_after = 100;
  type.learned->tokens_after_field = "num_detection_tokens";
  return type;
}

ModelType Vivit() {
  ModelType type = Image("vivit", 768, 224, 16, 1);
  type.learned->of = TableOf::kVideo;
  return type;
}

ModelType SpectrogramTransformer() {
  ModelType type = Image("audio-spectrogram-transformer", 768, 0, 16, 2);
  type.learned->of = TableOf::kSpectrogram;
  type.learned->image_field = "num_mel_bins";
  return type;
}

ModelType IdeficsVision() {
  ModelType type = Image("idefics_vision", 768, 224, 14, 1);
  type.learned->width_field = "embed_dim";
  return type;
}

// Pixio's n_cls_tokens come before the patches. tokens_after is equivalent: only the sum sets the table's size.
ModelType Pixio() {
  ModelType type = Image("pixio", 1280, 256, 16, 0);
  type.learned->tokens_after = 8;
  type.learned->tokens_after_field = "n_cls_tokens";
  type.note =
      "the table has n_cls_tokens rows, then one per patch, row by row; for an image of another size the model first "
      "resizes the patches' rows";
  return type;
}

ModelType Mpnet() {
  ModelType type = AfterPadding("mpnet", 512, 768);
  type.scheme = kT5;
  type.one_stack = OneStack{.scales_scores = true, .buckets_field = "", .distance_field = ""};
  type.learned->reads_padding = false;
  return type;
}

std::vector<ModelType> MakeLearnedTypes() {
  // clang-format off
  return {
      // Learned tables, or relative keys in their place.
      BertLike(Table("bert", 512, 768)),
      BertLike(Table("blip_2_qformer", 512, 768)),
      BertLike(Table("blip_text_model", 512, 768)),
      BertLike(Table("dpr", 512, 768)),
      BertLike(Table("ernie", 512, 768)),
      BertLike(Table("instructblip_qformer", 512, 768)),
      BertLike(Table("instructblipvideo_qformer", 512, 768)),
      BertLike(Table("megatron-bert", 512, 1024)),
      BertLike(Table("roc_bert", 512, 768)),
      BertLike(Table("electra", 512, 128, "embedding_size")),
      BertLike(AfterPadding("altclip_text_model", 514, 1024)),
      BertLike(AfterPadding("bridgetower_text_model", 514, 768)),
      BertLike(AfterPadding("camembert", 512, 768)),
      BertLike(AfterPadding("data2vec-text", 512, 768)),
      BertLike(AfterPadding("lilt", 512, 768, 0)),
      BertLike(AfterPadding("roberta", 512, 768)),
      BertLike(AfterPadding("roberta-prelayernorm", 512, 768)),
      BertLike(AfterPadding("xlm-roberta", 512, 768)),
      BertLike(AfterPadding("xlm-roberta-xl", 514, 2560)),
      BertLike(AfterPadding("xmod", 512, 768)),

      // Learned tables.
      Table("aimv2_text_model", 77, 768),
      Table("align_text_model", 512, 768),
      Table("bert-generation", 512, 1024),
      Table("big_bird", 4096, 768),
      Table("chinese_clip_text_model", 512, 768),
      Table("clvp_decoder", 608, 1024),
      Table("fnet", 512, 768),
      Table("canine", 16384, 768, "hidden_size", "num_hash_buckets"),
      Table("convbert", 512, 768, "embedding_size"),
      Table("flaubert", 512, 2048, "emb_dim"),
      Table("xlm", 512, 2048, "emb_dim"),
      Table("clip_text_model", 77, 512),
      Table("clipseg_text_model", 77, 512),
      Table("flava_text_model", 512, 768),
      Table("git", 1024, 768),
      Table("gpt_neo", 2048, 2048),
      Table("groupvit_text_model", 77, 256),
      Table("layoutlm", 512, 768),
      Table("lxmert", 512, 768),
      Table("metaclip_2_text_model", 77, 512),
      Table("mobilebert", 512, 512),
      Table("owlv2_text_model", 16, 512),
      Table("owlvit_text_model", 16, 512),
      Table("siglip2_text_model", 64, 768),
      Table("siglip_text_model", 64, 768),
      Table("splinter", 512, 768),
      Table("tvp", 512, 768),
      Table("visual_bert", 512, 768),
      Table("xclip_text_model", 77, 512),
      Table("albert", 512, 128, "embedding_size"),
      Table("audioflamingo3_encoder", 1500, 1280, "d_model", "max_source_positions"),
      Table("bigbird_pegasus", 4096, 1024, "d_model"),
      Table("blenderbot", 128, 2560, "d_model"),
      Table("blenderbot-small", 512, 512, "d_model"),
      Table("decision_transformer", 1024, 128, "hidden_size", "n_positions"),
      Table("distilbert", 512, 768, "dim"),
      Table("gpt-sw3", 1024, 768, "n_embd", "n_positions"),
      Table("gpt2", 1024, 768, "n_embd", "n_positions"),
      Table("gpt_bigcode", 1024, 768, "n_embd", "n_positions"),
      Table("imagegpt", 1024, 512, "n_embd", "n_positions"),
      Table("moss_transcribe_diarize_audio", 1500, 1024, "d_model", "max_source_positions"),
      Table("openai-gpt", 512, 768, "n_embd", "n_positions"),
      Table("qwen2_audio_encoder", 1500, 1280, "d_model", "max_source_positions"),
      Table("rembert", 512, 256, "input_embedding_size"),
      Table("squeezebert", 512, 768, "embedding_size"),
      AfterPadding("clap_text_model", 514, 768),
      AfterPadding("longformer", 512, 768),
      AfterPadding("luke", 512, 768),
      AfterPadding("markuplm", 512, 768, 0),
      FromTwo("bart", 1024, 1024, "d_model"),
      FromTwo("biogpt", 1024, 1024),
      FromTwo("mbart", 1024, 1024, "d_model"),
      FromTwo("mra", 512, 768),
      FromTwo("mvp", 1024, 1024, "d_model"),
      FromTwo("nystromformer", 510, 768),
      FromTwo("opt", 2048, 768),
      FromTwo("plbart", 1024, 768, "d_model"),
      FromTwo("pp_formulanet_text", 2560, 512, "d_model"),
      FromTwo("trocr", 512, 1024, "d_model"),
      FromTwo("yoso", 4096, 768),

      Mpnet(),
      Noted(AfterPadding("layoutlmv3", 512, 768), "this is the table of text tokens; image tokens have pos_embed; tokens also have box tables, and scores have biases by T5's buckets of positions and of boxes"),
      Noted(AfterPadding("prophetnet", 512, 1024, 0), "each stack has such a table, numbers only tokens that are not padding, and uses the last row for larger positions; the decoder also adds its own bucketed bias to its scores"),
      Noted(Table("layoutlmv2", 512, 768), "tokens also have box tables, and scores have biases by T5's buckets of positions and of boxes"),
      Noted(Table("led", 16384, 1024, "d_model", "max_encoder_position_embeddings"), "this is the encoder's table; the decoder's has max_decoder_position_embeddings rows: give it without a model"),
      Noted(Table("siglip2_vision_model", 256, 768, "hidden_size", "num_patches"), "the table covers a square grid, row by row; the model always resizes it to the image's patches"),
      Noted(Table("tapas", 1024, 768), "with reset_position_index_per_cell the model counts tokens from 0 in each cell of its input table"),
      Table("voxtral_encoder", 1500, 1280, "hidden_size", "max_source_positions"),
      Noted(AfterPadding("ibert", 512, 768), "with quant_mode the model quantizes the table's rows and the sums to integers with its own scales"),
      Noted(Table("bros", 512, 768), "scores also have a term computed from queries and a sinusoidal encoding of the differences between the tokens' boxes"),
      Noted(Table("cosmos3_edge_vision", 256, 1152, "hidden_size", "num_patches"), "the table covers a square grid, row by row; the model always resizes it to each frame's patches and reads it in blocks of spatial_merge_size"),
      Noted(Table("gemma4_unified_vision", 1120, 3840, "mm_embed_dim", "mm_posemb_size"), "there are two tables of this size: pos_embedding[:, 0] for a patch's column and pos_embedding[:, 1] for its row; both are added; padding gets neither"),
      Noted(Table("kosmos_2_5_vision_model", 4096, 1536, "hidden_size", "max_num_patches"), "there are two tables of this size: row_embedder for a patch's row and column_embedder for its column, both counted from 1 (0 is padding); both are added"),
      Noted(Table("layoutxlm", 512, 768), "tokens also have box tables, and scores have biases by T5's buckets of positions and of boxes"),
      Noted(Table("molmo2_vision", 729, 1152, "hidden_size", "num_position_embeddings"), "the table has one row per patch of a crop, row by row; every crop has the same number of patches"),
      Noted(Table("perceiver", 2048, 768, "d_model"), "this is the text preprocessor's table; other inputs and the decoders' queries have their own tables or Fourier features"),
      Noted(Table("pix2struct_vision_model", 4096, 768, "hidden_size", "seq_len"), "there are two tables of this size: row_embedder for a patch's row and column_embedder for its column, both counted from 1 (0 is padding); both are added"),
      Noted(Table("sam3_lite_text_text_model", 77, 512), "if the text's length differs from the table's, the model first resizes the table"),

      // Learned tables of patches: width, image size, patch size, tokens before.
      Bucketed("idefics2_vision", 768, 224, 32),
      Bucketed("idefics3_vision", 1152, 224, 32),
      Bucketed("minicpmv4_6_vision", 768, 224, 16),
      Bucketed("minicpmv4_7_vision", 768, 224, 16),
      Bucketed("phi4_multimodal_vision", 1152, 448, 14),
      Bucketed("smolvlm_vision", 1152, 224, 32),
      Bucketed("minicpm_ocr_vision", 768, 224, 16),
      Noted(Sized(Image("hunyuan_vl_vision", 1152, 2048, 16, 1), "max_image_size"), "no token uses the first row; the model always resizes the other rows to its image's patches"),
      IdeficsVision(),
      Noted(Image("aimv2_vision_model", 1024, 224, 14, 0), "the table has one row per patch, row by row; if is_native is true there is no table, and the model adds a sinusoidal embedding: GenerateEmbedding.grid, MAE convention, dim hidden_size, in float64"),
      Noted(Image("dpt", 768, 384, 16, 1), "the table has a row for a cls token, then one per patch, row by row; the model resizes the patches' rows to its image's patches; with a backbone_config and without is_hybrid only the backbone has positions"),
      Noted(Image("granite_docling_vision", 768, 512, 16, 0), "the table has one row per patch of a tile, row by row; the connector adds a sinusoidal embedding of its own cells: GenerateEmbedding.grid, MAE convention, dim out_hidden_size, in float64"),
      Pixio(),
      Noted(Sized(Image("radio", 1280, 2048, 16, 0), "max_img_size"), "the table has one row per patch of the largest image, row by row; the model resizes and crops it to its image's patches; cls and register tokens have no row"),
      Sam("pp_chart2table_vision"),
      Sam("pp_formulanet_vision", 512),
      Image("eomt", 1024, 640, 16, 0),
      Image("rf_detr_dinov2", 768, 224, 14, 1),
      Image("tipsv2_vision_model", 768, 448, 14, 1),
      Image("unlimited_ocr_vision_encoder", 1024, 224, 14, 1),
      Image("videomt", 1024, 640, 16, 0),
      Noted(Image("glm_image_vision", 1536, 2048, 16, 0), "the model always resamples the table to its image's patches"),
      Noted(Image("timesformer", 768, 224, 16, 1), "the table has a row for a cls token, then one per patch of a frame, row by row; a second table has num_frames rows, one per frame"),
      Noted(Image("vilt", 768, 384, 32, 1), "the table has a row for a cls token, then one per patch, row by row; the model resizes the patches' rows to its image's patches; the text has a table of max_position_embeddings rows"),
      Pretrained("lw_detr_vit", 768, "use_absolute_position_embeddings"),
      WithTerms(Pretrained("seggpt", 1024, "")),
      WithTerms(Pretrained("vitdet", 768, "use_absolute_position_embeddings")),
      Sam("deepseek_ocr2_sam_vision_model"),
      Sam("got_ocr2_vision"),
      Sam("sam_hq_vision_model"),
      Sam("sam_vision_model"),
      Sam("slanext_vision", 512),
      Sam("unlimited_ocr_sam_vision_model"),
      SpectrogramTransformer(),
      Noted(Wide(Image("vitpose_backbone", 768, 256, 16, 1), 192), "the model adds both the patch's row and the first row to each patch"),
      Wide(Image("mgp-str", 768, 32, 4, 1), 128),
      Vivit(),
      Yolos(),
      Image("kosmos_2_vision_model", 1024, 224, 14, 1),
      Image("ovis2_vision", 1024, 224, 14, 0),
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
      Image("flava_image_model", 768, 224, 16, 1),
      Image("git_vision_model", 768, 224, 16, 1),
      Image("groupvit_vision_model", 384, 224, 16, 0),
      Image("ijepa", 768, 224, 16, 0),
      Image("instructblip_vision_model", 1408, 224, 14, 1),
      Image("instructblipvideo_vision_model", 1408, 224, 14, 1),
      Image("internvl_vision", 1024, 448, 14, 1),
      Image("janus_vision_model", 1024, 384, 16, 0),
      Image("metaclip_2_vision_model", 768, 224, 32, 1),
      Image("owlv2_vision_model", 768, 768, 16, 1),
      Image("owlvit_vision_model", 768, 768, 32, 1),
      Image("qianfan_ocr_vision", 1024, 448, 14, 1),
      Image("siglip_vision_model", 768, 224, 16, 0),
      Image("vit", 768, 224, 16, 1),
      Image("vit_msn", 768, 224, 16, 1),
      Image("xclip_vision_model", 768, 224, 32, 1),
  };
  // clang-format on
}

}  // namespace

const std::vector<ModelType>& LearnedTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeLearnedTypes());
  return types;
}

}  // namespace posenc
