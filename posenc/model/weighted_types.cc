// Model types of which a config.json selects a term of the scores or a learned table: settings only, as the weights
// come with the request. Read off transformers 5.23; the relative keys of BERT's kin, transfo-xl and nezha, which it
// has no longer, off 4.57.
#include "posenc/model/model_types.h"

namespace posenc {
namespace {

using enum Scheme;
using enum TableStart;

// The class's own number of positions and width of a row.
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

// With position_embedding_type.
ModelType BertLike(ModelType type) {
  type.terms = Terms::kBert;
  return type;
}

ModelType Image(std::string_view name, int64_t width, int64_t image_size, int64_t patch_size, int64_t tokens_before) {
  return {.name = name,
          .scheme = kLearned,
          .learned = LearnedTable{
              .width = width, .image_size = image_size, .patch_size = patch_size, .tokens_before = tokens_before}};
}

std::vector<ModelType> MakeWeightedTypes() {
  // clang-format off
  return {
      // Terms of the scores; DeBERTa's input may have positions of its own, too.
      {.name = "deberta", .scheme = kTerms, .terms = Terms::kDeberta, .learned = LearnedTable{512, 768}},
      {.name = "deberta-v2", .scheme = kTerms, .head_dim_field = "attention_head_size", .terms = Terms::kDebertaV2, .learned = LearnedTable{512, 1536}},
      {.name = "nemotron_asr_streaming_encoder", .scheme = kTerms, .width = {1024, 8}, .terms = Terms::kConformer},
      {.name = "nezha", .scheme = kTerms, .terms = Terms::kNezha},
      {.name = "parakeet_encoder", .scheme = kTerms, .width = {1024, 8}, .terms = Terms::kConformer},
      {.name = "seamless_m4t", .scheme = kTerms, .terms = Terms::kConformerByType, .position_type = "relative"},
      {.name = "seamless_m4t_v2", .scheme = kTerms, .terms = Terms::kConformerByType, .position_type = "relative_key"},
      {.name = "sew-d", .scheme = kTerms, .head_dim_field = "attention_head_size", .terms = Terms::kDebertaV2},
      {.name = "speecht5", .scheme = kTerms, .terms = Terms::kSpeechT5},
      {.name = "transfo-xl", .scheme = kTerms, .head_dim_field = "d_head", .terms = Terms::kTransformerXl},
      {.name = "xlnet", .scheme = kTerms, .head_dim_field = "d_head", .terms = Terms::kXlnet},

      // Learned tables, or relative keys in their place.
      BertLike(Table("bert", 512, 768)),
      BertLike(Table("blip_2_qformer", 512, 768)),
      BertLike(Table("blip_text_model", 512, 768)),
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
      FromTwo("trocr", 512, 1024, "d_model"),
      FromTwo("yoso", 4096, 768),

      // Learned tables of patches: width, image, patch, tokens before.
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

      // Of several parts.
      Composite("align", {{"text_config", "align_text_model"}}),
      Composite("altclip", {{"text_config", "altclip_text_model"}, {"vision_config", "altclip_vision_model"}}),
      Composite("blip", {{"text_config", "blip_text_model"}, {"vision_config", "blip_vision_model"}}),
      Composite("blip-2", {{"text_config", "opt"}, {"vision_config", "blip_2_vision_model"}, {"qformer_config", "blip_2_qformer"}}),
      Composite("bridgetower", {{"text_config", "bridgetower_text_model"}, {"vision_config", "bridgetower_vision_model"}}),
      Composite("chinese_clip", {{"text_config", "chinese_clip_text_model"}, {"vision_config", "chinese_clip_vision_model"}}),
      Composite("clip", {{"text_config", "clip_text_model"}, {"vision_config", "clip_vision_model"}}),
      Composite("clipseg", {{"text_config", "clipseg_text_model"}, {"vision_config", "clipseg_vision_model"}}),
      Composite("flava", {{"text_config", "flava_text_model"}, {"image_config", "flava_image_model"}}),
      Composite("groupvit", {{"text_config", "groupvit_text_model"}, {"vision_config", "groupvit_vision_model"}}),
      Composite("instructblip", {{"text_config", "opt"}, {"vision_config", "instructblip_vision_model"}, {"qformer_config", "instructblip_qformer"}}),
      Composite("instructblipvideo", {{"text_config", "opt"}, {"vision_config", "instructblipvideo_vision_model"}, {"qformer_config", "instructblipvideo_qformer"}}),
      Composite("metaclip_2", {{"text_config", "metaclip_2_text_model"}, {"vision_config", "metaclip_2_vision_model"}}),
      Composite("nemotron_asr_streaming", {{"encoder_config", "nemotron_asr_streaming_encoder"}}),
      Composite("owlv2", {{"text_config", "owlv2_text_model"}, {"vision_config", "owlv2_vision_model"}}),
      Composite("owlvit", {{"text_config", "owlvit_text_model"}, {"vision_config", "owlvit_vision_model"}}),
      Composite("parakeet_ctc", {{"encoder_config", "parakeet_encoder"}}),
      Composite("parakeet_rnnt", {{"encoder_config", "parakeet_encoder"}}),
      Composite("parakeet_tdt", {{"encoder_config", "parakeet_encoder"}}),
      Composite("siglip", {{"text_config", "siglip_text_model"}, {"vision_config", "siglip_vision_model"}}),
      Composite("xclip", {{"text_config", "xclip_text_model"}, {"vision_config", "xclip_vision_model"}}),
  };
  // clang-format on
}

}  // namespace

const std::vector<ModelType>& WeightedTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeWeightedTypes());
  return types;
}

}  // namespace posenc
