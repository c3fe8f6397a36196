// Model types whose config.json selects a score term. It gives settings only: the weights come with the request. Taken
// from transformers 5.23; transfo-xl and nezha, which it no longer has, from 4.57.
#include "posenc/model/model_types.h"

namespace posenc {
namespace {

using enum Scheme;

std::vector<ModelType> MakeWeightedTypes() {
  // clang-format off
  return {
      // Score terms. DeBERTa may also add a learned table to its input.
      {.name = "deberta", .scheme = kTerms, .terms = Terms::kDeberta, .learned = LearnedTable{512, 768}},
      {.name = "deberta-v2", .scheme = kTerms, .head_dim_field = "attention_head_size", .terms = Terms::kDebertaV2, .learned = LearnedTable{512, 1536}},
      {.name = "nemotron_asr_streaming_encoder", .scheme = kTerms, .width = {1024, 8}, .terms = Terms::kConformer},
      {.name = "fastspeech2_conformer", .scheme = kTerms, .terms = Terms::kConformer},
      {.name = "gemma3n_audio", .scheme = kTerms, .width = {1536, 8}, .terms = Terms::kGemmaAudio},
      {.name = "gemma4_audio", .scheme = kTerms, .width = {1024, 8}, .terms = Terms::kGemmaAudio},
      {.name = "granite_speech5_encoder", .scheme = kTerms, .width = {1024, 8}, .terms = Terms::kGraniteSpeech},
      {.name = "granite_speech_encoder", .scheme = kTerms, .head_dim_field = "dim_head", .hidden_size_field = "hidden_dim", .width = {1024, 8}, .terms = Terms::kGraniteSpeech},
      {.name = "granite_speech_plus_encoder", .scheme = kTerms, .head_dim_field = "dim_head", .hidden_size_field = "hidden_dim", .width = {1024, 8}, .terms = Terms::kGraniteSpeech},
      {.name = "nezha", .scheme = kTerms, .terms = Terms::kNezha},
      {.name = "parakeet_encoder", .scheme = kTerms, .width = {1024, 8}, .terms = Terms::kConformer},
      {.name = "seamless_m4t", .scheme = kTerms, .terms = Terms::kConformerByType, .position_type = "relative"},
      {.name = "seamless_m4t_v2", .scheme = kTerms, .terms = Terms::kConformerByType, .position_type = "relative_key"},
      {.name = "sew-d", .scheme = kTerms, .head_dim_field = "attention_head_size", .terms = Terms::kDebertaV2},
      {.name = "speecht5", .scheme = kTerms, .terms = Terms::kSpeechT5, .sines = SineTable{SinusoidalConvention::kFairseq, 768, "hidden_size"}},
      {.name = "transfo-xl", .scheme = kTerms, .head_dim_field = "d_head", .terms = Terms::kTransformerXl},
      {.name = "vits", .scheme = kTerms, .terms = Terms::kVits},
      {.name = "xlnet", .scheme = kTerms, .head_dim_field = "d_head", .terms = Terms::kXlnet},

      // Composite files.
      Composite("align", {{"text_config", "align_text_model"}}),
      Composite("altclip", {{"text_config", "altclip_text_model"}, {"vision_config", "altclip_vision_model"}}),
      Composite("blip", {{"text_config", "blip_text_model"}, {"vision_config", "blip_vision_model"}}),
      Composite("blip-2", {{"text_config", "opt"}, {"vision_config", "blip_2_vision_model"}, {"qformer_config", "blip_2_qformer"}}),
      Composite("bridgetower", {{"text_config", "bridgetower_text_model"}, {"vision_config", "bridgetower_vision_model"}}),
      Composite("chinese_clip", {{"text_config", "chinese_clip_text_model"}, {"vision_config", "chinese_clip_vision_model"}}),
      Composite("clip", {{"text_config", "clip_text_model"}, {"vision_config", "clip_vision_model"}}),
      Composite("clipseg", {{"text_config", "clipseg_text_model"}, {"vision_config", "clipseg_vision_model"}}),
      Composite("florence2", {{"text_config", "bart"}}),
      Composite("encoder-decoder", {{"encoder", "bert"}, {"decoder", "bert"}}),
      Composite("granite_speech5_ctc", {{"encoder_config", "granite_speech5_encoder"}}),
      Composite("inkling_mm_model", {{"text_config", "inkling_text"}}),
      Composite("kosmos-2.5", {{"text_config", "kosmos_2_5_text_model"}, {"vision_config", "kosmos_2_5_vision_model"}}),
      Composite("lw_detr", {{"backbone_config", "lw_detr_vit"}}),
      Composite("pp_formulanet", {{"text_config", "pp_formulanet_text"}, {"vision_config", "pp_formulanet_vision"}}),
      Composite("rag", {{"question_encoder", "dpr"}, {"generator", "bart"}}),
      Composite("rf_detr", {{"backbone_config", "rf_detr_dinov2"}}),
      Composite("speech-encoder-decoder", {{"encoder", "wav2vec2"}, {"decoder", "bert"}}),
      Composite("tipsv2", {{"text_config", "tipsv2_text_model"}, {"vision_config", "tipsv2_vision_model"}}),
      Composite("tipsv2_dpt", {{"backbone_config", "tipsv2_vision_model"}}),
      Composite("unlimited_ocr_vision", {{"sam_config", "unlimited_ocr_sam_vision_model"}, {"encoder_config", "unlimited_ocr_vision_encoder"}}),
      Composite("videoprism", {{"text_config", "videoprism_text_model"}, {"vision_config", "videoprism_vision_model"}}),
      Composite("vision-encoder-decoder", {{"encoder", "vit"}, {"decoder", "bert"}}),
      Composite("flava", {{"text_config", "flava_text_model"}, {"image_config", "flava_image_model"}}),
      Composite("groupvit", {{"text_config", "groupvit_text_model"}, {"vision_config", "groupvit_vision_model"}}),
      Composite("instructblip", {{"text_config", "opt"}, {"vision_config", "instructblip_vision_model"}, {"qformer_config", "instructblip_qformer"}}),
      Composite("instructblipvideo", {{"text_config", "opt"}, {"vision_config", "instructblipvideo_vision_model"}, {"qformer_config", "instructblipvideo_qformer"}}),
      Composite("kosmos-2", {{"text_config", "kosmos_2_text_model"}, {"vision_config", "kosmos_2_vision_model"}}),
      Composite("metaclip_2", {{"text_config", "metaclip_2_text_model"}, {"vision_config", "metaclip_2_vision_model"}}),
      Composite("nemotron_asr_streaming", {{"encoder_config", "nemotron_asr_streaming_encoder"}}),
      Composite("owlv2", {{"text_config", "owlv2_text_model"}, {"vision_config", "owlv2_vision_model"}}),
      Composite("owlvit", {{"text_config", "owlvit_text_model"}, {"vision_config", "owlvit_vision_model"}}),
      Composite("parakeet_ctc", {{"encoder_config", "parakeet_encoder"}}),
      Composite("parakeet_rnnt", {{"encoder_config", "parakeet_encoder"}}),
      Composite("parakeet_tdt", {{"encoder_config", "parakeet_encoder"}}),
      Composite("siglip", {{"text_config", "siglip_text_model"}, {"vision_config", "siglip_vision_model"}}),
      Composite("siglip2", {{"text_config", "siglip2_text_model"}, {"vision_config", "siglip2_vision_model"}}),
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
