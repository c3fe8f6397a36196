// Model types that no config.json selects: what they have instead, as far as transformers 5.23's source says.
#include <algorithm>

#include "posenc/model/model_types.h"

namespace posenc {
namespace {

// Names, separated by spaces or line breaks.
void Add(Scheme scheme, std::string_view names, std::vector<ModelType>* types) {
  while (!names.empty()) {
    const size_t begin = names.find_first_not_of(" \n");
    if (begin == std::string_view::npos) return;
    names.remove_prefix(begin);
    const size_t length = std::min(names.find_first_of(" \n"), names.size());
    types->push_back({.name = names.substr(0, length), .scheme = scheme});
    names.remove_prefix(length);
  }
}

std::vector<ModelType> MakeOtherTypes() {
  std::vector<ModelType> types;
  Add(Scheme::kLearned, R"(
aimv2_text_model albert align align_text_model align_vision_model altclip altclip_text_model altclip_vision_model
audio-spectrogram-transformer audioflamingo3_encoder bart bert bert-generation big_bird bigbird_pegasus biogpt
blenderbot blenderbot-small blip blip-2 blip_2_qformer blip_2_vision_model blip_text_model blip_vision_model
bridgetower bridgetower_text_model bridgetower_vision_model camembert chinese_clip chinese_clip_text_model
chinese_clip_vision_model clap_text_model clip clip_text_model clip_vision_model clipseg clipseg_text_model
clipseg_vision_model data2vec-text decision_transformer deit dinov2 dinov2_with_registers distilbert electra ernie
flava flava_image_model flava_multimodal_model flava_text_model florence2 git git_vision_model glm_image_vision
gpt-sw3 gpt2 gpt_bigcode gpt_neo groupvit groupvit_text_model groupvit_vision_model hunyuan_vl_vision idefics2_vision
idefics3_vision ijepa imagegpt instructblip instructblip_qformer instructblip_vision_model instructblipvideo
instructblipvideo_qformer instructblipvideo_vision_model internvl_vision janus_vision_model kosmos_2_text_model
layoutlm led lilt longformer luke lxmert markuplm mbart megatron-bert metaclip_2 metaclip_2_text_model
metaclip_2_vision_model minicpmv4_6_vision minicpmv4_7_vision mobilebert moss_transcribe_diarize_audio mra mvp
nystromformer openai-gpt opt ovis2_vision owlv2 owlv2_text_model owlv2_vision_model owlvit owlvit_text_model
owlvit_vision_model phi4_multimodal_vision plbart pvt qianfan_ocr_vision qwen2_audio_encoder rembert roberta
roberta-prelayernorm roc_bert siglip siglip2 siglip2_text_model siglip2_vision_model siglip_text_model
siglip_vision_model smolvlm_vision splinter squeezebert tapas timesformer trocr tvp vilt visual_bert vit vit_msn
vitpose_backbone vivit voxtral_encoder xclip xclip_text_model xclip_vision_model xlm-roberta xlm-roberta-xl xmod yolos
yoso)",
      &types);
  Add(Scheme::kSinusoidal, R"(
autoformer canary_decoder conditional_detr ctrl dab-detr detr fsmt informer m2m_100 marian musicgen_decoder
musicgen_melody_decoder nllb-moe pegasus pegasus_x qwen2_5_omni_audio_encoder qwen3_asr_encoder
qwen3_omni_moe_audio_encoder speech_to_text table-transformer time_series_transformer videomae vit_mae whisper xglm)",
      &types);
  Add(Scheme::kRelativeTerms, R"(
cpmant deberta deberta-v2 deepseek_ocr2_sam_vision_model fastspeech2_conformer funnel gemma3n_audio gemma4_audio
got_ocr2_vision granite_speech_encoder granite_speech_plus_encoder nemotron_asr_streaming
nemotron_asr_streaming_encoder parakeet_ctc parakeet_encoder parakeet_rnnt parakeet_tdt phi4_multimodal_audio
prophetnet sam_hq_vision_model sam_vision_model seamless_m4t_v2 seggpt sew-d slanext_vision
unlimited_ocr_sam_vision_model vitdet vits wavlm xlnet)",
      &types);
  Add(Scheme::kBuckets, "layoutlmv2 layoutlmv3 mpnet pix2struct_text_model udop", &types);
  Add(Scheme::kWindowBias, R"(
levit swin2sr swinv2)",
      &types);
  Add(Scheme::kRotatedHalves, "gemma4_vision", &types);
  Add(Scheme::kOwnRotary, R"(
clvp_encoder edgetam_video efficientloftr hunyuan_vl_text kimi_k25_vision lightglue neomme sam2_video
sam3_tracker_video vjepa2)",
      &types);
  Add(Scheme::kNone, R"(
convnext convnextv2 dac efficientnet encodec falcon_mamba glm5_next_text hgnet_v2 jamba kimi_linear mamba mamba2
mobilenet_v1 mobilenet_v2 nemotron_h regnet resnet rwkv textnet timm_backbone xlstm zamba)",
      &types);
  return types;
}

}  // namespace

const std::vector<ModelType>& OtherTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeOtherTypes());
  return types;
}

std::string_view SchemeName(Scheme scheme) {
  switch (scheme) {
    case Scheme::kRotary:
    case Scheme::kAxial: return "a rotary embedding: ApplyRotary";
    case Scheme::kBloomAlibi:
    case Scheme::kMptAlibi:
    case Scheme::kT5:
    case Scheme::kSwin:
    case Scheme::kBeit: return "a bias of the distance: GenerateBias, AddBias";
    case Scheme::kFalcon: return "ALiBi or a rotary embedding";
    case Scheme::kParts: return "parts that have";
    case Scheme::kLearned: return "learned absolute positions: GenerateEmbedding.learned with the model's table";
    case Scheme::kSinusoidal: return "sinusoidal positions: GenerateEmbedding.sinusoidal or .grid";
    case Scheme::kRelativeTerms: return "relative terms of its queries and keys";
    case Scheme::kBuckets: return "a learned bias in T5's buckets: GenerateBias.t5 with its table";
    case Scheme::kWindowBias: return "a learned bias in windows: GenerateBias with swin or swin_v2";
    case Scheme::kRotatedHalves:
      return "a rotary embedding for each half of a head: ApplyRotary twice, with settings and rotary_offset";
    case Scheme::kOwnRotary:
      return "a rotary embedding of its own kind: ApplyRotary with given_frequencies or given_table";
    case Scheme::kNone: return "no positional encoding of its queries and keys";
  }
  __builtin_unreachable();
}

bool IsSelected(Scheme scheme) {
  switch (scheme) {
    case Scheme::kRotary:
    case Scheme::kAxial:
    case Scheme::kBloomAlibi:
    case Scheme::kMptAlibi:
    case Scheme::kFalcon:
    case Scheme::kT5:
    case Scheme::kSwin:
    case Scheme::kBeit: return true;
    default: return false;
  }
}

}  // namespace posenc
