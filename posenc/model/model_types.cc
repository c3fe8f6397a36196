// Read off the configuration and modeling files of transformers 5.23.
#include "posenc/model/model_types.h"

namespace posenc {
namespace {

constexpr Pairing kHalf = Pairing::kHalfSplit;
constexpr Pairing kInter = Pairing::kInterleaved;
constexpr Precision kEager = kHfEagerPrecision;

// A class like Llama's: half-split, eager chain, partial_rotary_factor not read by default rope.
ModelType LikeLlama(std::string_view name, double rope_theta = 10000, int64_t head_dim = 0) {
  return {.model_type = name,
          .input_pairing = kHalf,
          .output_pairing = kHalf,
          .precision = kEager,
          .rope_theta = rope_theta,
          .head_dim = head_dim};
}

// The same with a rotary width that partial_rotary_factor decides.
ModelType LikePhi(std::string_view name, double partial_rotary_factor, int64_t head_dim = 0) {
  ModelType type = LikeLlama(name, 10000, head_dim);
  type.partial = Partial::kHonoured;
  type.partial_rotary_factor = partial_rotary_factor;
  return type;
}

ModelType With(ModelType type, void (*change)(ModelType&)) {
  change(type);
  return type;
}

std::vector<ModelType> MakeModelTypes() {
  const auto interleaved = [](ModelType& t) { t.input_pairing = t.output_pairing = kInter; };
  const auto cohere = [](ModelType& t) {
    t.input_pairing = t.output_pairing = kInter;
    t.precision = kVllmPrecision;
  };
  const auto float32 = [](ModelType& t) { t.precision = kF32Precision; };
  const auto alibi = [](ModelType& t) { t.alibi = ModelAlibi::kFalcon; };
  const auto t5 = [](ModelType& t) { t.t5 = true; };
  return {
      LikeLlama("llama"),
      LikeLlama("mistral"),
      LikeLlama("mixtral", 1e6),
      With(LikeLlama("ministral3", 10000, 128),
           [](ModelType& t) {
             t.query_scale_field = "llama_4_scaling_beta";
             t.block = RopeParameters{.rope_type = "yarn",
                                      .rope_theta = 1e6,
                                      .factor = 16,
                                      .original_max_position_embeddings = 16384,
                                      .mscale = 1,
                                      .mscale_all_dim = 1};
           }),
      LikeLlama("qwen2"),
      LikeLlama("qwen2_moe"),
      LikeLlama("qwen3", 10000, 128),
      LikeLlama("qwen3_moe"),
      LikeLlama("gemma", 10000, 256),
      LikeLlama("gemma2", 10000, 256),
      With(LikeLlama("gpt_oss", 150000, 64),
           [](ModelType& t) {
             t.block = RopeParameters{
                 .rope_type = "yarn", .factor = 32, .original_max_position_embeddings = 4096, .truncate = false};
           }),
      LikeLlama("granite"),
      LikeLlama("hunyuan_v1_dense"),
      LikeLlama("internlm3", 10000, 128),
      LikeLlama("starcoder2"),
      LikePhi("glm4_moe", 0.5),
      With(LikePhi("gpt_neox", 0.25),
           [](ModelType& t) {
             t.theta_name = "rotary_emb_base";
             t.partial_name = "rotary_pct";
           }),
      LikePhi("nemotron", 0.5),
      LikePhi("persimmon", 0.5),
      LikePhi("phi", 0.5),
      With(LikePhi("phi3", 1), [](ModelType& t) { t.original_length = 4096; }),
      LikePhi("stablelm", 0.25),
      With(LikePhi("glm", 0.5, 128), interleaved),
      With(LikePhi("glm4", 0.5, 128), interleaved),
      With(LikeLlama("gptj"),
           [](ModelType& t) {
             t.input_pairing = t.output_pairing = kInter;
             t.head_width = HeadWidth::kRotaryDim;
             t.head_dim = 64;
           }),
      With(LikeLlama("cohere", 500000), cohere),
      With(LikeLlama("cohere2"),
           [](ModelType& t) {
             t.input_pairing = t.output_pairing = kInter;
             t.precision = kVllmPrecision;
             t.layers = Layers::kSlidingOnly;
             t.sliding_pattern = 4;
           }),
      With(LikeLlama("olmo"), float32),
      With(LikeLlama("olmo2"), float32),
      With(LikeLlama("olmo3", 500000),
           [](ModelType& t) {
             t.precision = kF32Precision;
             t.layers = Layers::kLocalGlobal;
             t.sliding_pattern = 4;
             t.local_rope_theta = 500000;
           }),
      With(LikeLlama("gemma3_text", 1e6, 256),
           [](ModelType& t) {
             t.layers = Layers::kLocalGlobal;
             t.sliding_pattern = 6;
             t.local_rope_theta = 10000;
           }),
      With(LikeLlama("smollm3", 2e6), [](ModelType& t) { t.layers = Layers::kNoRopeList; }),
      // V2 rotates complex numbers in float32; V3 reads interleaved pairs and leaves half-split ones.
      With(LikeLlama("deepseek_v2"),
           [](ModelType& t) {
             t.input_pairing = t.output_pairing = kInter;
             t.precision = kF32Precision;
             t.head_width = HeadWidth::kQkRopeHeadDim;
             t.head_dim = 64;
             t.scales_softmax = true;
           }),
      With(LikeLlama("deepseek_v3"),
           [](ModelType& t) {
             t.input_pairing = kInter;
             t.reads_interleave = true;
             t.head_width = HeadWidth::kQkRopeHeadDim;
             t.head_dim = 64;
             t.scales_softmax = true;
           }),
      With(LikeLlama("bloom"), [](ModelType& t) { t.alibi = ModelAlibi::kBloom; }),
      With(LikeLlama("mpt"), [](ModelType& t) { t.alibi = ModelAlibi::kMpt; }),
      With(LikeLlama("falcon"), alibi),
      With(LikeLlama("t5"), t5),
      With(LikeLlama("mt5"), t5),
      With(LikeLlama("umt5"), t5),
      With(LikeLlama("switch_transformers"), t5),
  };
}

}  // namespace

const std::vector<ModelType>& ModelTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeModelTypes());
  return types;
}

const ModelType* FindModelType(std::string_view model_type) {
  for (const ModelType& type : ModelTypes()) {
    if (type.model_type == model_type) return &type;
  }
  return nullptr;
}

}  // namespace posenc
