// Model types from which a config.json selects no encoding, with the scheme that they have instead according to the
// source of transformers 5.24.
#include <initializer_list>
#include <string_view>
#include <vector>

#include "posenc/model/model_types.h"

namespace posenc {
namespace {

void Add(Scheme scheme, std::initializer_list<std::string_view> names, std::vector<ModelType>* types) {
  for (std::string_view name : names) types->push_back({.name = name, .scheme = scheme});
}

std::vector<ModelType> MakeUnselectedTypes() {
  std::vector<ModelType> types;
  // clang-format off
  Add(Scheme::kLearned, {
      "florence_vision", "hiera", "mllama_vision_model", "patchtsmixer", "patchtst", "pvt", "reformer",
      "sam2_hiera_det_model", "videoprism_vision_model"},
      &types);
  Add(Scheme::kSinusoidal, {"sam3_geometry_encoder", "sam3_lite_text_geometry_encoder"}, &types);
  Add(Scheme::kRelativeTerms, {
      "funnel", "phi4_multimodal_audio", "sam3_detr_decoder", "sam3_lite_text_detr_decoder"},
      &types);
  Add(Scheme::kWindowBias, {"dinat", "levit"}, &types);
  // Its projector.weight is [pairs, axes], and the positions are the keypoints.
  Add(Scheme::kLearnedFrequencies, {"lightglue"}, &types);
  Add(Scheme::kNone, {
      "align_vision_model", "apertus1p5_vision_tokenizer", "bit", "chameleon_vqgan", "convnext", "convnextv2", "cvt", "dac", "data2vec-audio",
      "dinov3_convnext", "edgetam_mask_decoder", "edgetam_prompt_encoder", "edgetam_video_mask_decoder",
      "edgetam_video_prompt_encoder", "efficientnet", "emu3_vqgan", "encodec", "falcon_mamba",
      "fastspeech2_conformer_hifigan", "flava_image_codebook", "flava_multimodal_model", "focalnet", "gemma3n_vision",
      "gemma4_unified_audio", "glm5_next_text", "glm_image_vqmodel", "glpn", "hgnet_v2", "hubert",
      "idefics2_perceiver", "idefics_perciever", "inkling_audio", "inkling_vision", "jamba", "janus_vqgan",
      "kimi_linear", "mamba", "mamba2", "mobilenet_v1", "mobilenet_v2", "mobilevit", "mobilevitv2", "molmo2_adapter",
      "moonshine_streaming_encoder", "moshi_depth", "muse_spark_audio", "nemotron_h", "omniasr_audio", "poolformer", "pp_lcnet",
      "pp_lcnet_v3", "pp_lcnet_v4", "pp_ocrv5_mobile_det", "pp_ocrv5_mobile_rec", "pp_ocrv6_medium_det",
      "pp_ocrv6_small_det", "pp_ocrv6_small_rec", "pp_ocrv6_tiny_rec", "pvt_v2", "qwen2_5_omni_bigvgan", "regnet",
      "resnet", "rt_detr_resnet", "rwkv", "sam2_mask_decoder", "sam2_prompt_encoder", "sam2_video_mask_decoder",
      "sam2_video_prompt_encoder", "sam3_detr_encoder", "sam3_lite_text_detr_encoder", "sam3_lite_text_mask_decoder",
      "sam3_mask_decoder", "sam3_tracker_mask_decoder", "sam3_tracker_prompt_encoder",
      "sam3_tracker_video_mask_decoder", "sam3_tracker_video_prompt_encoder", "sam_hq_mask_decoder",
      "sam_hq_prompt_encoder", "sam_mask_decoder", "sam_prompt_encoder", "sapiens2_head", "segformer", "sew",
      "slanet", "speecht5_hifigan", "superglue", "superpoint", "swiftformer", "textnet", "timm_backbone",
      "timm_wrapper", "unispeech", "unispeech-sat", "univnet", "uvdoc", "uvdoc_backbone",
      "vibevoice_acoustic_tokenizer", "vibevoice_acoustic_tokenizer_decoder", "vibevoice_acoustic_tokenizer_encoder",
      "vibevoice_diffusion", "wav2vec2", "wavtokenizer", "xlstm", "zamba"},
      &types);
  // clang-format on
  return types;
}

}  // namespace

const std::vector<ModelType>& UnselectedTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeUnselectedTypes());
  return types;
}

}  // namespace posenc
