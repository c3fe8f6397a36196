// Model types that transformers does not have: their code is released beside the weights, and engines have their own.
// The facts are those of the released code where it could be run, else of vLLM 0.32; docs/model-types.md says which.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/exact/real.h"
#include "posenc/model/class_rules.h"
#include "posenc/model/parts.h"

namespace posenc {
namespace {

constexpr Pairing kInter = Pairing::kInterleaved;
constexpr Precision kF32 = kF32Precision;
constexpr std::string_view kOriginal = "original_max_position_embeddings";

// Sets a parameter of the scaling from a field outside the block, which must be given beside another.
absl::Status Take(Part& part, std::string_view field, std::string_view beside, std::string_view name,
                  std::optional<double>& parameter) {
  POSENC_ASSIGN_OR_RETURN(parameter, part.config.Number({field}));
  if (!parameter) {
    return InvalidArgument("MISSING", part.config.Path(field), "", fmt::format("must be given beside {}", beside));
  }
  part.Comes(fmt::format("rope_parameters.{}", name), part.config.Path(field));
  return absl::OkStatus();
}

// ChatGLM2 and 3, GLM-4: theta is 10000 * rope_ratio. original_rope false pairs half-split (CogAgent). ChatGLM-6B has
// positions of two axes under the same name, and computes its angles in float16.
absl::Status ReadChatGlm(Part& part) {
  for (std::string_view name : {"position_encoding_2d", "max_sequence_length", "inner_hidden_size"}) {
    if (!part.config.Has(name)) continue;
    return InvalidArgument(
        "UNSUPPORTED", part.config.Path(name), AsText(part.config.tree()[std::string(name)]),
        "must be absent: ChatGLM-6B has two axes, (position, block position), which are settings: "
        "axial with two axes of half a head each, half_split_parts 2; it rounds its angles to float16, "
        "which no settings do: for its own numbers give its tables (given_table)");
  }
  POSENC_ASSIGN_OR_RETURN(const auto ratio, part.config.Number({"rope_ratio"}));
  if (ratio && !(*ratio > 0)) {
    return InvalidArgument("OUT_OF_RANGE", part.config.Path("rope_ratio"), fmt::format("{}", *ratio),
                           "must be above 0");
  }
  part.type.theta = 10000 * ratio.value_or(1);
  POSENC_ASSIGN_OR_RETURN(const auto interleaved, part.config.Bool("original_rope"));
  if (!interleaved.value_or(true)) part.type.pairing = Pairing::kHalfSplit;
  part.type.output_pairing = part.type.pairing;
  return absl::OkStatus();
}

// MiniCPM takes the long factors for all positions of a file whose max_position_embeddings is above the original
// length: its first table has as many rows. It does not read the block's factor.
absl::Status ReadMiniCpm(Part& part, RopeBlock& block) {
  RopeParameters& p = block.parameters;
  if (p.rope_type != "longrope") return absl::OkStatus();
  if (p.factor) part.Say("NOT_USED", block.Path("factor"), "the magnitude is computed from the lengths");
  p.factor.reset();
  POSENC_ASSIGN_OR_RETURN(const auto longest, part.config.Number({"max_position_embeddings"}));
  for (const auto& [path, value] : {std::pair{block.Path(kOriginal), p.original_max_position_embeddings},
                                    {part.config.Path("max_position_embeddings"), longest}}) {
    if (!value) return InvalidArgument("MISSING", path, "", "must be given with rope_type \"longrope\"");
  }
  if (*longest <= *p.original_max_position_embeddings) return absl::OkStatus();
  part.Say("NOT_USED", block.Path("short_factor"),
           "max_position_embeddings is above the original length: long_factor serves all positions");
  p.longrope_branch = LongropeBranch::kLong;
  return absl::OkStatus();
}

// Baichuan 7B rotates and 13B has ALiBi, under one name: 7B's files have max_position_embeddings, 13B's
// model_max_length.
absl::Status ReadBaichuan(Part& part) {
  const bool rotates = part.config.Find("max_position_embeddings") != nullptr;
  part.type.scheme = rotates ? Scheme::kRotary : Scheme::kBloomAlibi;
  if (rotates || part.config.Find("model_max_length") != nullptr) return absl::OkStatus();
  return InvalidArgument("MISSING", part.config.Path("max_position_embeddings"), "",
                         "must be given (7B, rotary embedding), or model_max_length (13B, ALiBi)");
}

// Qwen 1 raises theta in steps beyond seq_length if use_dynamic_ntk is true.
absl::Status ReadQwenNtk(Part& part, RopeBlock& block) {
  POSENC_ASSIGN_OR_RETURN(const auto dynamic, part.config.Bool("use_dynamic_ntk"));
  if (!dynamic.value_or(false)) return absl::OkStatus();
  block.parameters.rope_type = "qwen_ntk";
  part.Say("POSITIONS", "use_dynamic_ntk",
           "the sequence's length is that of the prompt: the model keeps its base while it generates");
  return Take(part, "seq_length", "use_dynamic_ntk", kOriginal, block.parameters.original_max_position_embeddings);
}

// Step 3's class spells its length so; it does not enter the rotation.
absl::Status ReadStep3Length(Part& part) { return part.config.Integer({"max_position_embedding"}).status(); }

absl::Status ReadTelechatNtk(Part& part, RopeBlock& block) {
  block.parameters.rope_type = "telechat_ntk";
  return Take(part, "base_seqlen", "training_seqlen", kOriginal, block.parameters.original_max_position_embeddings);
}

absl::Status ReadTrainingLength(Part& part, RotarySettings& settings, RopeParameters&) {
  POSENC_ASSIGN_OR_RETURN(const auto length, part.config.Number({"training_seqlen"}));
  part.Comes("max_position_embeddings", part.config.Path("training_seqlen"));
  settings.max_position_embeddings = length.value_or(8192);
  return absl::OkStatus();
}

// TeleChat 3's YaRN has a magnitude of 0.07 mscale ln(factor) + 1 in place of 0.1.
absl::Status ReadTelechat3(Part& part, RopeBlock& block) {
  RopeParameters& p = block.parameters;
  if (p.rope_type != "telechat3-yarn") return absl::OkStatus();
  p.rope_type = "yarn";
  if (p.mscale_all_dim) part.Say("NOT_USED", block.Path("mscale_all_dim"), "TeleChat 3 does not divide by it");
  if (!p.attention_factor && p.factor && *p.factor > 0) {
    p.attention_factor =
        NearestDouble(Real(7) / Real(100) * Real(p.mscale.value_or(1)) * Log(Real(*p.factor)) + Real(1.0));
    part.Comes("rope_parameters.attention_factor", block.Path("factor"));
  }
  p.mscale.reset();
  p.mscale_all_dim.reset();
  return absl::OkStatus();
}

// Bailing's first classes have DeepSeek's YaRN, whose magnitude is a quotient also if only mscale is given.
absl::Status ReadBailing(Part&, RopeBlock& block) {
  if (block.parameters.rope_type == "yarn") block.parameters.rope_type = "deepseek_yarn";
  return absl::OkStatus();
}

// PLaMo 3 scales full_attention layers by rope_scaling_factor, and no others.
absl::StatusOr<LayerBlock> Plamo3Block(Part& part, const RopeBlocks&, const std::string& layer_type,
                                       const LayerTypeNames&) {
  LayerBlock own;
  RopeBlock& block = own.block.emplace();
  RopeParameters& p = block.parameters;
  block.path = part.config.Path("rope_parameters");
  p.rope_type = "default";
  own.flat = true;
  own.class_theta = 10000;
  own.theta_field = "rope_local_theta";
  if (layer_type != "full_attention") return own;
  own.class_theta = 150000;
  own.theta_field = part.config.Has("rope_global_theta") ? "rope_global_theta" : "rope_theta";
  POSENC_ASSIGN_OR_RETURN(const auto factor, part.config.Number({"rope_scaling_factor"}));
  if (factor.value_or(1) == 1) return own;
  p.rope_type = "yarn";
  p.factor = factor;
  p.truncate = false;
  block.has_factor = true;
  part.Comes("rope_parameters.factor", part.config.Path("rope_scaling_factor"));
  POSENC_RETURN_IF_ERROR(
      Take(part, "initial_context_length", "rope_scaling_factor", kOriginal, p.original_max_position_embeddings));
  return own;
}

// Mistral's params.json: `yarn` and `llama_4_scaling` in place of a block.
absl::Status ReadParams(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto scaled, part.config.Bool("use_scaled_rope"));
  if (scaled.value_or(false)) {  // Llama 3.1 and later
    return InvalidArgument("UNSUPPORTED", part.config.Path("use_scaled_rope"), "true",
                           "must be false or absent: this params.json does not say its scaling; give the model's "
                           "config.json");
  }
  POSENC_ASSIGN_OR_RETURN(const auto latent, part.config.Integer({"qk_rope_head_dim"}));
  if (!latent) return absl::OkStatus();
  return InvalidArgument("UNSUPPORTED", part.config.Path("qk_rope_head_dim"), fmt::format("{}", *latent),
                         "must be absent: with latent attention, give the model's config.json in place of params.json");
}

absl::Status ReadParamsYarn(Part& part, RopeBlock& block) {
  POSENC_ASSIGN_OR_RETURN(const auto yarn, part.config.Object("yarn"));
  if (!yarn) return absl::OkStatus();
  RopeParameters& p = block.parameters;
  for (const auto& [key, value] : yarn->tree().items()) {
    if (key != "factor" && key != kOriginal && key != "beta" && key != "alpha" && key != "apply_scale") {
      return InvalidArgument("UNKNOWN_FIELD", yarn->Path(key), AsText(value),
                             "must be absent, or factor, original_max_position_embeddings, beta, alpha, apply_scale");
    }
  }
  p.rope_type = "yarn";
  block.path = yarn->path();
  block.has_factor = yarn->Has("factor");
  part.Comes("rope_parameters", yarn->path());
  part.Comes("rope_parameters.beta_fast", yarn->Path("beta"));
  part.Comes("rope_parameters.beta_slow", yarn->Path("alpha"));
  POSENC_ASSIGN_OR_RETURN(p.factor, yarn->Number({"factor"}));
  POSENC_ASSIGN_OR_RETURN(p.original_max_position_embeddings, yarn->Number({kOriginal}));
  POSENC_ASSIGN_OR_RETURN(p.beta_fast, yarn->Number({"beta"}));
  POSENC_ASSIGN_OR_RETURN(p.beta_slow, yarn->Number({"alpha"}));
  POSENC_ASSIGN_OR_RETURN(const auto scales, yarn->Bool("apply_scale"));
  if (!scales.value_or(true)) p.attention_factor = 1;
  return absl::OkStatus();
}

absl::Status ReadParamsQueryScale(Part& part, RotarySettings& settings, RopeParameters&) {
  POSENC_ASSIGN_OR_RETURN(const auto scaling, part.config.Object("llama_4_scaling"));
  if (!scaling) return absl::OkStatus();
  for (const auto& [key, value] : scaling->tree().items()) {
    if (key == "beta" || key == kOriginal) continue;
    return InvalidArgument("UNKNOWN_FIELD", scaling->Path(key), AsText(value),
                           "must be absent, or beta or original_max_position_embeddings");
  }
  QueryScale scale{.function = QueryScaleFunction::kMinistral3, .rounds_factor = true};
  POSENC_ASSIGN_OR_RETURN(scale.llama_4_scaling_beta, scaling->Number({"beta"}));
  POSENC_ASSIGN_OR_RETURN(scale.original_max_position_embeddings, scaling->Number({kOriginal}));
  part.Comes("query_scale.llama_4_scaling_beta", scaling->Path("beta"));
  part.Comes("query_scale.original_max_position_embeddings", scaling->Path(kOriginal));
  part.Say(
      std::string(kQueryScaleNote), "llama_4_scaling",
      "q is multiplied by 1 + beta * ln(1 + floor(position / original_max_position_embeddings)), as in the model: do "
      "not multiply it again");
  settings.query_scale = scale;
  return absl::OkStatus();
}

absl::Status ReadGrok2(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto rope_type, part.config.String("rope_type"));
  POSENC_ASSIGN_OR_RETURN(const auto half, part.config.Bool("rope_rotate_half_dims"));
  if (half.value_or(false)) part.type.partial = 0.5;
  if (rope_type.value_or("original") == "original") return absl::OkStatus();
  return InvalidArgument("UNSUPPORTED", part.config.Path("rope_type"), *rope_type,
                         "must be \"original\", which does not scale, or absent");
}

std::vector<ModelType> MakeRemoteCodeTypes() {
  const std::vector<std::string_view> old_scalings = {"default", "linear", "dynamic"};
  constexpr BlockIn kNowhere = BlockIn::kNowhere;
  const ClassRules plamo3 = {
      .layer_block = Plamo3Block,
      .fields = {"rope_local_theta", "rope_global_theta", "rope_scaling_factor", "initial_context_length"}};
  const ClassRules telechat = {.adapt = ReadOlderWidths<kOldEmbed>,
                               .block = ReadTelechatNtk,
                               .settings = ReadTrainingLength,
                               .fields = {"n_embed", "base_seqlen", "training_seqlen"}};
  const std::vector<LayerDefaults> plamo3_layers = {{.layer_type = "sliding_attention"},
                                                    {.layer_type = "full_attention", .rope_theta = 150000}};

  // clang-format off
  std::vector<ModelType> types = {
      // Run here against the released code.
      {.name = "bailing_moe", .partial = 1,
       .rope_types = {"default", "linear", "dynamic", "deepseek_yarn"}, .rules = {.block = ReadBailing}},
      {.name = "bailing_moe_v2", .theta = 600000, .partial = 1, .head_dim = 128},
      {.name = "baichuan", .scheme = Scheme::kFalcon, .theta_field = "", .block_in = kNowhere, .head_dim_field = "",
       .rules = {.adapt = ReadBaichuan}},
      {.name = "chatglm", .pairing = kInter, .theta_field = "", .partial = 0.5, .partial_field = "",
       .block_in = kNowhere, .head_dim_field = "kv_channels", .rules = {.adapt = ReadChatGlm, .fields = {"rope_ratio"}}},
      {.name = "internlm2", .rope_types = old_scalings, .head_dim_field = ""},
      {.name = "minicpm", .precision = kVllmPrecision, .rope_types = {"default", "linear", "dynamic", "longrope"},
       .head_dim_field = "", .rules = {.block = ReadMiniCpm}},
      {.name = "mistral_params", .pairing = kInter, .precision = kF32, .block_in = kNowhere,
       .hidden_size_field = "dim", .heads_field = "n_heads",
       .rules = {.adapt = ReadParams, .block = ReadParamsYarn, .settings = ReadParamsQueryScale},
       .note = "pairing of consolidated weights; engines that permute wq and wk on loading rotate half-split"},
      {.name = "molmo", .precision = kF32, .block_in = kNowhere, .head_dim_field = ""},
      {.name = "qwen", .precision = kF32, .theta_field = "rotary_emb_base", .partial = 1, .partial_field = "rotary_pct",
       .block_in = kNowhere, .head_dim_field = "kv_channels", .head_dim = 128,
       .query_scale = QueryScaleFunction::kLogn, .rules = {.block = ReadQwenNtk, .fields = {"seq_length"}}},
      {.name = "step3_text", .theta = 500000, .head_dim = 256, .rules = {.adapt = ReadStep3Length}},
      {.name = "telechat", .theta_field = "", .block_in = kNowhere, .head_dim_field = "", .rules = telechat},

      // Read in two independent sources, not run.
      {.name = "grok_2", .precision = kF32, .partial = 1, .block_in = kNowhere, .head_dim = 128,
       .rules = {.adapt = ReadGrok2}},

      // Run here against vLLM.
      {.name = "orion", .rope_types = old_scalings, .head_dim_field = ""},
      {.name = "PanguEmbedded", .theta = 16e6},
      {.name = "pangu_ultra_moe", .pairing = kInter, .precision = kVllmPrecision, .block_in = kNowhere,
       .head_dim = 64, .unrotated_dim = 128},
      {.name = "plamo3", .block_in = kNowhere, .head_dim = 128, .layers = Layers::kByType,
       .pattern = {.every = 8, .ignores_list = true}, .by_layer = plamo3_layers, .rules = plamo3},
      {.name = "telechat3", .theta = 1e6, .head_dim = 128, .rules = {.block = ReadTelechat3}},
  };
  // clang-format on
  for (ModelType& type : types) type.original = kReleasedCode;
  return types;
}

}  // namespace

const std::vector<ModelType>& RemoteCodeTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeRemoteCodeTypes());
  return types;
}

}  // namespace posenc
