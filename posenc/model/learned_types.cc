// Model types with a learned table of token positions, or relative keys in its place. config.json gives settings only:
// the weights come with the request. Taken from transformers 5.24; relative keys of BERT-like types, which it no longer
// has, from 4.57.
#include <string_view>
#include <vector>

#include "posenc/model/model_types.h"

namespace posenc {
namespace {

using enum TableStart;

constexpr std::string_view kTextTokensOnly =
    "this is the table of text tokens; image tokens have pos_embed; tokens also have box tables, and scores have "
    "biases by T5's buckets of positions and of boxes";
constexpr std::string_view kOwnTablePerStack =
    "each stack has such a table, numbers only tokens that are not padding, and uses the last row for larger "
    "positions; the decoder also adds its own bucketed bias to its scores";
constexpr std::string_view kBoxTables =
    "tokens also have box tables, and scores have biases by T5's buckets of positions and of boxes";
constexpr std::string_view kEncoderOnly =
    "this is the encoder's table; the decoder's has max_decoder_position_embeddings rows: give it without a model";
constexpr std::string_view kResizedGrid =
    "the table covers a square grid, row by row; padding gets the resized table's first row";
constexpr std::string_view kCountsWithinCells =
    "with reset_position_index_per_cell the model counts tokens from 0 in each cell of its input table";
constexpr std::string_view kQuantizedRows =
    "with quant_mode the model quantizes the table's rows and the sums to integers with its own scales";
constexpr std::string_view kBoxDifferenceTerm =
    "scores also have a term computed from queries and a sinusoidal encoding of the differences between the tokens' "
    "boxes";
constexpr std::string_view kResizedGridInBlocks =
    "the table covers a square grid, row by row; each frame gets the resized table";
constexpr std::string_view kColumnAndRowTables =
    "there are two tables of this size: pos_embedding[:, 0] for a patch's column and pos_embedding[:, 1] for its row; "
    "both are added; padding gets neither";
constexpr std::string_view kRowAndColumnTables =
    "there are two tables of this size: row_embedder for a patch's row and column_embedder for its column, both "
    "counted from 1 (0 is padding); both are added";
constexpr std::string_view kPatchesOfCrop =
    "the table has one row per patch of a crop, row by row; every crop has the same number of patches";
constexpr std::string_view kTextPreprocessor =
    "this is the text preprocessor's table; other inputs and the decoders' queries have their own tables or Fourier "
    "features";

// Table with the class's default number of positions and row width.
ModelType Table(std::string_view name, int64_t positions, int64_t width, std::string_view width_field = "hidden_size",
                std::string_view positions_field = "max_position_embeddings") {
  return {.name = name,
          .scheme = Scheme::kLearned,
          .learned = LearnedTable{
              .positions = positions, .width = width, .width_field = width_field, .positions_field = positions_field}};
}

// Position 0 has row 2.
ModelType FromTwo(std::string_view name, int64_t positions, int64_t width,
                  std::string_view width_field = "hidden_size") {
  ModelType type = Table(name, positions, width, width_field);
  type.learned->start = kTwo;
  return type;
}

// Position 0 has the row after pad_token_id, by default `padding`.
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

std::vector<ModelType> MakeLearnedTypes() {
  // clang-format off
  return {
      // Columns: name, positions, width; if not the usual ones: width_field, positions_field, or pad_token_id.

      // Relative keys instead of the table if position_embedding_type says so.
      BertLike(AfterPadding("altclip_text_model", 514, 1024)),
      BertLike(Table("bert", 512, 768)),
      BertLike(Table("blip_2_qformer", 512, 768)),
      BertLike(Table("blip_text_model", 512, 768)),
      BertLike(AfterPadding("bridgetower_text_model", 514, 768)),
      BertLike(AfterPadding("camembert", 512, 768)),
      BertLike(AfterPadding("data2vec-text", 512, 768)),
      BertLike(Table("dpr", 512, 768)),
      BertLike(Table("electra", 512, 128, "embedding_size")),
      BertLike(Table("ernie", 512, 768)),
      BertLike(Table("instructblip_qformer", 512, 768)),
      BertLike(Table("instructblipvideo_qformer", 512, 768)),
      BertLike(AfterPadding("lilt", 512, 768, 0)),
      BertLike(Table("megatron-bert", 512, 1024)),
      BertLike(AfterPadding("roberta", 512, 768)),
      BertLike(AfterPadding("roberta-prelayernorm", 512, 768)),
      BertLike(Table("roc_bert", 512, 768)),
      BertLike(AfterPadding("xlm-roberta", 512, 768)),
      BertLike(AfterPadding("xlm-roberta-xl", 514, 2560)),
      BertLike(AfterPadding("xmod", 512, 768)),

      // Width from hidden_size, positions from max_position_embeddings.
      Table("aimv2_text_model", 77, 768),
      Table("align_text_model", 512, 768),
      Table("bert-generation", 512, 1024),
      Table("big_bird", 4096, 768),
      Table("chinese_clip_text_model", 512, 768),
      Table("clip_text_model", 77, 512),
      Table("clipseg_text_model", 77, 512),
      Table("clvp_decoder", 608, 1024),
      Table("flava_text_model", 512, 768),
      Table("fnet", 512, 768),
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

      // Width from another field.
      Table("albert", 512, 128, "embedding_size"),
      Table("bigbird_pegasus", 4096, 1024, "d_model"),
      Table("blenderbot", 128, 2560, "d_model"),
      Table("blenderbot-small", 512, 512, "d_model"),
      Table("canine", 16384, 768, "hidden_size", "num_hash_buckets"),
      Table("convbert", 512, 768, "embedding_size"),
      Table("distilbert", 512, 768, "dim"),
      Table("flaubert", 512, 2048, "emb_dim"),
      Table("rembert", 512, 256, "input_embedding_size"),
      Table("squeezebert", 512, 768, "embedding_size"),
      Table("xlm", 512, 2048, "emb_dim"),

      // Speech encoders.
      Table("audioflamingo3_encoder", 1500, 1280, "d_model", "max_source_positions"),
      Table("moss_transcribe_diarize_audio", 1500, 1024, "d_model", "max_source_positions"),
      Table("qwen2_audio_encoder", 1500, 1280, "d_model", "max_source_positions"),
      Table("voxtral_encoder", 1500, 1280, "hidden_size", "max_source_positions"),

      // GPT-2 and its relatives.
      Table("decision_transformer", 1024, 128, "hidden_size", "n_positions"),
      Table("gpt-sw3", 1024, 768, "n_embd", "n_positions"),
      Table("gpt2", 1024, 768, "n_embd", "n_positions"),
      Table("gpt_bigcode", 1024, 768, "n_embd", "n_positions"),
      Table("imagegpt", 1024, 512, "n_embd", "n_positions"),
      Table("openai-gpt", 512, 768, "n_embd", "n_positions"),

      // RoBERTa and its relatives: positions follow pad_token_id.
      AfterPadding("clap_text_model", 514, 768),
      AfterPadding("longformer", 512, 768),
      AfterPadding("luke", 512, 768),
      AfterPadding("markuplm", 512, 768, 0),

      // BART, OPT and their relatives: two rows before the first position.
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

      Resized(Table("sam3_lite_text_text_model", 77, 512), {.mode = ResizeMode::kLinear}),

      // Tables with a note to callers.
      Noted(Table("bros", 512, 768), kBoxDifferenceTerm),
      Noted(Resized(Table("cosmos3_edge_vision", 256, 1152, "hidden_size", "num_patches"),
                    {.mode = ResizeMode::kBilinear, .antialias = true, .block = 2}), kResizedGridInBlocks),
      Noted(Table("gemma4_unified_vision", 1120, 3840, "mm_embed_dim", "mm_posemb_size"), kColumnAndRowTables),
      Noted(AfterPadding("ibert", 512, 768), kQuantizedRows),
      Noted(Table("kosmos_2_5_vision_model", 4096, 1536, "hidden_size", "max_num_patches"), kRowAndColumnTables),
      Noted(Table("layoutlmv2", 512, 768), kBoxTables),
      Noted(AfterPadding("layoutlmv3", 512, 768), kTextTokensOnly),
      Noted(Table("layoutxlm", 512, 768), kBoxTables),
      Noted(Table("led", 16384, 1024, "d_model", "max_encoder_position_embeddings"), kEncoderOnly),
      Noted(Table("molmo2_vision", 729, 1152, "hidden_size", "num_position_embeddings"), kPatchesOfCrop),
      Noted(Table("perceiver", 2048, 768, "d_model"), kTextPreprocessor),
      Noted(Table("pix2struct_vision_model", 4096, 768, "hidden_size", "seq_len"), kRowAndColumnTables),
      Noted(AfterPadding("prophetnet", 512, 1024, 0), kOwnTablePerStack),
      Noted(Resized(Table("siglip2_vision_model", 256, 768, "hidden_size", "num_patches"),
                    {.mode = ResizeMode::kBilinear, .antialias = true}), kResizedGrid),
      Noted(Table("tapas", 1024, 768), kCountsWithinCells),
  };
  // clang-format on
}

}  // namespace

const std::vector<ModelType>& LearnedTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeLearnedTypes());
  return types;
}

}  // namespace posenc
