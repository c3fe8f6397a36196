// Model types of which a config.json selects nothing: what they have instead, as far as transformers 5.23's source
// says.
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
align_vision_model audio-spectrogram-transformer flava_multimodal_model florence2 glm_image_vision hunyuan_vl_vision
idefics2_vision idefics3_vision kosmos_2_text_model led minicpmv4_6_vision minicpmv4_7_vision ovis2_vision
phi4_multimodal_vision pvt siglip2 siglip2_vision_model smolvlm_vision tapas timesformer vilt vitpose_backbone vivit
voxtral_encoder yolos)",
      &types);
  Add(Scheme::kSinusoidal, R"(
autoformer canary_decoder conditional_detr ctrl dab-detr detr fsmt informer m2m_100 marian musicgen_decoder
musicgen_melody_decoder nllb-moe pegasus pegasus_x qwen2_5_omni_audio_encoder qwen3_asr_encoder
qwen3_omni_moe_audio_encoder speech_to_text table-transformer time_series_transformer videomae vit_mae whisper xglm)",
      &types);
  Add(Scheme::kRelativeTerms, R"(
cpmant deepseek_ocr2_sam_vision_model fastspeech2_conformer funnel gemma3n_audio gemma4_audio got_ocr2_vision
granite_speech_encoder granite_speech_plus_encoder phi4_multimodal_audio prophetnet sam_hq_vision_model
sam_vision_model seggpt slanext_vision unlimited_ocr_sam_vision_model vitdet vits wavlm)",
      &types);
  Add(Scheme::kBuckets, "layoutlmv2 layoutlmv3 mpnet pix2struct_text_model udop", &types);
  Add(Scheme::kWindowBias, "levit", &types);
  Add(Scheme::kOwnRotary, "hunyuan_vl_text lightglue vjepa2", &types);
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
    case Scheme::kSwinV2:
    case Scheme::kBeit: return "a bias of the distance: GenerateBias, AddBias";
    case Scheme::kFalcon: return "ALiBi or a rotary embedding";
    case Scheme::kParts: return "parts that have";
    case Scheme::kTerms: return "terms of its queries and keys: RelativeScores";
    case Scheme::kLearned: return "learned absolute positions: GenerateEmbedding.learned with the model's table";
    case Scheme::kSinusoidal: return "sinusoidal positions: GenerateEmbedding.sinusoidal or .grid";
    case Scheme::kRelativeTerms: return "relative terms of its own kind";
    case Scheme::kBuckets: return "a learned bias in T5's buckets: GenerateBias.t5 with its table";
    case Scheme::kWindowBias: return "a learned bias in windows: GenerateBias with swin or swin_v2";
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
    case Scheme::kSwinV2:
    case Scheme::kBeit: return true;
    default: return false;
  }
}

}  // namespace posenc
