// Model types from which a config.json selects no encoding, with the scheme that they have instead according to the
// source of transformers 5.23.
#include <algorithm>

#include "posenc/model/model_types.h"

namespace posenc {
namespace {

// `names` are separated by spaces or line breaks.
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
florence_vision hiera mllama_vision_model patchtsmixer patchtst pvt reformer sam2_hiera_det_model
videoprism_vision_model)",
      &types);
  Add(Scheme::kSinusoidal, R"(
sam3_geometry_encoder sam3_lite_text_geometry_encoder)",
      &types);
  Add(Scheme::kRelativeTerms, R"(
funnel inkling2_text inkling_text phi4_multimodal_audio sam3_detr_decoder sam3_lite_text_detr_decoder)",
      &types);
  Add(Scheme::kWindowBias, "dinat levit", &types);
  Add(Scheme::kOwnRotary, "hunyuan_vl_text lightglue vjepa2", &types);
  Add(Scheme::kNone, R"(
align_vision_model bit chameleon_vqgan convnext convnextv2 cvt dac data2vec-audio dinov3_convnext edgetam_mask_decoder
edgetam_prompt_encoder edgetam_video_mask_decoder edgetam_video_prompt_encoder efficientnet emu3_vqgan encodec
falcon_mamba fastspeech2_conformer_hifigan flava_image_codebook flava_multimodal_model focalnet gemma3n_vision
gemma4_unified_audio glm5_next_text glm_image_vqmodel glpn hgnet_v2 hubert idefics2_perceiver idefics_perciever
inkling_audio inkling_vision jamba janus_vqgan kimi_linear mamba mamba2 mobilenet_v1 mobilenet_v2 mobilevit
mobilevitv2 molmo2_adapter moonshine_streaming_encoder moshi_depth muse_spark_audio nemotron_h poolformer pp_lcnet
pp_lcnet_v3 pp_lcnet_v4 pp_ocrv5_mobile_det pp_ocrv5_mobile_rec pp_ocrv6_medium_det pp_ocrv6_small_det
pp_ocrv6_small_rec pp_ocrv6_tiny_rec pvt_v2 qwen2_5_omni_bigvgan regnet resnet rt_detr_resnet rwkv sam2_mask_decoder
sam2_prompt_encoder sam2_video_mask_decoder sam2_video_prompt_encoder sam3_detr_encoder sam3_lite_text_detr_encoder
sam3_lite_text_mask_decoder sam3_mask_decoder sam3_tracker_mask_decoder sam3_tracker_prompt_encoder
sam3_tracker_video_mask_decoder sam3_tracker_video_prompt_encoder sam_hq_mask_decoder sam_hq_prompt_encoder
sam_mask_decoder sam_prompt_encoder sapiens2_head segformer sew slanet speecht5_hifigan superglue superpoint
swiftformer textnet timm_backbone timm_wrapper unispeech unispeech-sat univnet uvdoc uvdoc_backbone
vibevoice_acoustic_tokenizer vibevoice_acoustic_tokenizer_decoder vibevoice_acoustic_tokenizer_encoder
vibevoice_diffusion wav2vec2 xlstm zamba)",
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
    case Scheme::kBeit: return "a distance-dependent attention bias: GenerateBias, AddBias";
    case Scheme::kFalcon: return "ALiBi or a rotary embedding";
    case Scheme::kParts: return "several parts, each with its own encoding";
    case Scheme::kTerms: return "relative score terms of queries and keys: RelativeScores";
    case Scheme::kLearned: return "learned absolute positions: GenerateEmbedding.learned with the model's table";
    case Scheme::kSinusoidal:
      return "a sinusoidal embedding, added to its input: GenerateEmbedding.sinusoidal or .grid";
    case Scheme::kRelativeTerms: return "relative score terms of its own kind";
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
