// Model types of multi-head latent attention, with a part of the head that rotates. Taken from transformers 5.24;
// scripts/check-model-types compares every row with an installed release.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/model/class_rules.h"
#include "posenc/model/parts.h"

namespace posenc {
namespace {

constexpr Pairing kHalf = Pairing::kHalfSplit;
constexpr Pairing kInter = Pairing::kInterleaved;
constexpr Precision kF32 = kF32Precision;
constexpr std::string_view kSliding = "sliding_attention", kFull = "full_attention", kIndexed = "indexed_attention";

constexpr LayerPattern kDots3 = {.every = 4, .field = "", .full = kIndexed, .at = 1, .first = 2};

constexpr std::string_view kLearnedScale =
    "the model also multiplies the frequencies by exp(alpha), and q of each head by scale * ln(position + 1) + bias, "
    "which are learned; the answer does not";

// The class reads head_dim beside qk_rope_head_dim, and fails if they differ. `otherwise`: the class's default
// head_dim.
absl::Status CheckHeadDim(const Part& part, std::optional<int64_t> otherwise) {
  constexpr std::string_view kRotated = "qk_rope_head_dim";
  POSENC_ASSIGN_OR_RETURN(const auto given, part.config.Integer({kRotated}));
  POSENC_ASSIGN_OR_RETURN(auto head_dim, part.config.Integer({"head_dim"}));
  const int64_t rotated = given.value_or(part.type.head_dim);
  if (!head_dim) head_dim = otherwise;
  if (head_dim.value_or(rotated) == rotated) return absl::OkStatus();
  return Against(part.config.Path(kRotated),
                 InvalidArgument("CONFLICT", part.config.Path("head_dim"), fmt::format("{}", *head_dim),
                                 fmt::format("must be equal to {}, {}", kRotated, rotated)));
}

absl::Status CheckHeadDimOrDefault(Part& part) { return CheckHeadDim(part, part.type.head_dim); }

absl::Status ReadInterleaveAndHeadDim(Part& part) {
  POSENC_RETURN_IF_ERROR(CheckHeadDim(part, std::nullopt));
  return ReadInterleave(part);
}

// Bailing 2.5's own class has lightning attention on its linear layers, which rotates.
absl::Status NoteLinearLayers(Part& part) {
  if (!NamesClass(part.config, "BailingMoeV2_5ForCausalLM")) return absl::OkStatus();
  part.Say(
      "POSITIONS", "architectures",
      "this class also rotates q and k of its linear layers, half-split, the first head_dim * partial_rotary_factor "
      "elements of a head by rope_theta, unless linear_rope is false; the answer is about the other layers");
  return absl::OkStatus();
}

// DeepSeek-VL2 tiny and DeepSeek-OCR say deepseek_v2 and have Llama's attention.
absl::Status ReadUsesMla(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto uses, part.config.Bool("use_mla"));
  if (uses.value_or(true)) return absl::OkStatus();
  part.type.unrotated_dim.reset();
  part.type.pairing = kHalf;
  part.type.output_pairing = kHalf;
  part.type.head_dim_field = "";
  part.type.head_dim = 0;
  part.type.precision = kHfEagerPrecision;
  return absl::OkStatus();
}

absl::Status ReadSarvamYarn(Part& part, RopeBlock& block) {
  RopeParameters& p = block.parameters;
  if (p.rope_type != "deepseek_yarn" || !block.path.ends_with("rope_scaling")) return absl::OkStatus();
  part.Say("RENAMED", block.TypePath(), "Sarvam reads \"deepseek_yarn\" as \"yarn\"");
  p.rope_type = "yarn";
  return absl::OkStatus();
}

// GLM-4 MoE Lite computes narrower tables from a share of the head, and fails to apply them.
absl::Status NoteNarrowerTables(Part& part, RotarySettings&, RopeParameters& p) {
  if (p.partial_rotary_factor.value_or(1) == 1 || p.rope_type != "default") return absl::OkStatus();
  part.Say(std::string(kCannotRun), PathOf(part, "partial_rotary_factor"),
           fmt::format("model_type \"{}\" computes narrower tables from it, and fails in its first forward: "
                       "qk_rope_head_dim elements rotate here",
                       part.type.name));
  p.partial_rotary_factor.reset();
  return absl::OkStatus();
}

// Mistral 4: partial_rotary_factor in the block is qk_rope_head_dim's share of the whole head.
absl::Status ReadShareOfWholeHead(Part& part, RopeBlock& block) {
  RopeParameters& p = block.parameters;
  if (p.rope_type == "default" || p.rope_type == "proportional") {
    part.Say(std::string(kCannotRun), block.TypePath(),
             fmt::format("{}: model_type \"{}\" computes tables for the whole head, and fails in its first forward: "
                         "qk_rope_head_dim elements rotate here",
                         p.rope_type, part.type.name));
  }
  if (p.rope_type == "default" || !p.partial_rotary_factor) return absl::OkStatus();
  const double share = *p.partial_rotary_factor;
  p.partial_rotary_factor.reset();
  POSENC_ASSIGN_OR_RETURN(const int64_t rotated, HeadDimOf(part));
  POSENC_ASSIGN_OR_RETURN(const int64_t unrotated, UnrotatedDimOf(part));
  const auto whole = static_cast<double>(rotated + unrotated);
  if (std::floor(whole * share) == static_cast<double>(rotated)) return absl::OkStatus();
  return InvalidArgument("CONFLICT", block.Path("partial_rotary_factor"), fmt::format("{}", share),
                         fmt::format("must be {}, qk_rope_head_dim / (qk_nope_head_dim + qk_rope_head_dim)",
                                     static_cast<double>(rotated) / whole));
}

absl::Status DropShare(Part&, RotarySettings&, RopeParameters& p) {
  if (p.partial_rotary_factor == 1) p.partial_rotary_factor.reset();
  return absl::OkStatus();
}

// dots3: the name of full attention with an indexer depends on use_dsa, by default true, and all layers have it if
// use_sliding_window is false or null.
absl::StatusOr<LayerTypeNames> Dots3Types(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(LayerTypeNames types, ListedOrPattern(part, layers));
  POSENC_ASSIGN_OR_RETURN(const auto listed, ListedTypes(part));
  POSENC_ASSIGN_OR_RETURN(const auto slides, part.config.Bool("use_sliding_window"));
  if (!listed && (part.config.IsNull("use_sliding_window") || !slides.value_or(true))) {
    std::fill(types.begin(), types.end(), std::string(kIndexed));
  }
  POSENC_ASSIGN_OR_RETURN(const auto indexed, part.config.Bool("use_dsa"));
  if (!indexed && (part.config.IsNull("use_dsa") || part.config.Find("per_layer_config") != nullptr)) return types;
  const std::string_view from = indexed.value_or(true) ? kFull : kIndexed;
  const std::string_view to = indexed.value_or(true) ? kIndexed : kFull;
  std::replace(types.begin(), types.end(), std::string(from), std::string(to));
  return types;
}

// The sliding layers' head, which a file with per_layer_config does not give in this way.
absl::Status ReadSlidingHead(Part& part) {
  constexpr std::string_view kWhole = "swa_head_dim", kUnrotated = "swa_qk_nope_head_dim";
  constexpr std::string_view kRotated = "swa_qk_rope_head_dim";
  POSENC_ASSIGN_OR_RETURN(const auto given_whole, part.config.Integer({kWhole}));
  POSENC_ASSIGN_OR_RETURN(const auto given_unrotated, part.config.Integer({kUnrotated}));
  POSENC_ASSIGN_OR_RETURN(const auto given_rotated, part.config.Integer({kRotated}));
  const int64_t whole = given_whole.value_or(256), unrotated = given_unrotated.value_or(192);
  const int64_t rotated = given_rotated.value_or(whole - unrotated);
  if (rotated + unrotated != whole || rotated < 1) {
    return Against(
        part.config.Path(kUnrotated),
        InvalidArgument("CONFLICT", part.config.Path(kWhole), fmt::format("{}", whole),
                        fmt::format("must be equal to {} + {}, {} + {}", kUnrotated, kRotated, unrotated, rotated)));
  }
  part.layer_head_dim = rotated;
  part.layer_unrotated_dim = unrotated;
  part.Comes("head_dim", part.config.Path(kRotated));
  return absl::OkStatus();
}

// A single block serves all layer types, each with its own head.
absl::StatusOr<LayerBlock> Dots3Block(Part& part, const RopeBlocks& blocks, const std::string& layer_type,
                                      const LayerTypeNames&) {
  if (layer_type == kSliding && part.config.Find("per_layer_config") == nullptr) {
    POSENC_RETURN_IF_ERROR(ReadSlidingHead(part));
  }
  if (blocks.empty() || IsByLayerType(blocks)) return UsualBlock(part, blocks, layer_type);
  return LayerBlock{blocks[0].second, part.type.block_theta, part.type.theta_field, false};
}

absl::Status KeepSoftmax(Part& part, RotarySettings&, RopeParameters&) {
  part.keeps_softmax = true;
  return absl::OkStatus();
}

std::vector<ModelType> MakeLatentTypes() {
  const RopeParameters mistral4_yarn = {.rope_type = "yarn",
                                        .rope_theta = 10000,
                                        .factor = 128,
                                        .original_max_position_embeddings = 8192,
                                        .mscale = 1,
                                        .mscale_all_dim = 1};
  const RopeParameters mistral_large4_yarn = {.rope_type = "yarn",
                                              .rope_theta = 10000,
                                              .factor = 2048,
                                              .original_max_position_embeddings = 512,
                                              .attention_factor = 1};
  const ClassRules dots3_rules = {.layer_types = Dots3Types,
                                  .layer_block = Dots3Block,
                                  .settings = KeepSoftmax,
                                  .fields = {"swa_head_dim", "swa_qk_nope_head_dim", "swa_qk_rope_head_dim"}};

  // clang-format off
  const std::vector<LayerDefaults> dots3 = {
      {.layer_type = kSliding, .rope_theta = 50000, .theta_field = "swa_rope_theta"},
      {.layer_type = kIndexed, .rope_theta = 8e7, .theta_field = "rope_theta"},
      {.layer_type = kFull, .rope_theta = 8e7, .theta_field = "rope_theta"}};
  return {
      {.name = "dots3_note_text", .pairing = kInter, .output_pairing = kHalf,
       .partial = 1, .head_dim = 64, .unrotated_dim = 128, .cuts_head = true, .layers = Layers::kByType, .pattern = kDots3,
       .by_layer = dots3, .block_theta = 8e7, .rules = dots3_rules},
      {.name = "axk1", .pairing = kInter, .output_pairing = kHalf,
       .head_dim = 64, .unrotated_dim = 128, .rules = {.adapt = ReadInterleaveAndHeadDim}},
      {.name = "axk2", .pairing = kInter, .output_pairing = kHalf, .head_dim = 32, .unrotated_dim = 64},
      {.name = "bailing_hybrid", .pairing = kInter, .output_pairing = kHalf, .theta = 6e6,
       .head_dim = 64, .unrotated_dim = 128, .pattern = {6, "layer_group_size", "linear_attention"},
       .rules = {.adapt = NoteLinearLayers}},
      {.name = "deepseek_v2", .pairing = kInter, .precision = kF32, .head_dim = 64, .unrotated_dim = 128,
       .rules = {.adapt = ReadUsesMla}},
      {.name = "deepseek_v3", .pairing = kInter, .output_pairing = kHalf,
       .head_dim = 64, .unrotated_dim = 128, .rules = {.adapt = ReadInterleaveAndHeadDim}},
      {.name = "deepseek_v32", .pairing = kInter, .output_pairing = kHalf, .head_dim = 64, .unrotated_dim = 128},
      {.name = "glm4_moe_lite", .pairing = kInter, .output_pairing = kHalf,
       .head_dim = 64, .unrotated_dim = 192, .rules = {.adapt = ReadInterleaveAndHeadDim, .settings = NoteNarrowerTables}},
      {.name = "glm_moe_dsa", .pairing = kInter, .output_pairing = kHalf, .head_dim = 64, .unrotated_dim = 192},
      {.name = "hy_v4", .head_dim = 64, .unrotated_dim = 192},
      {.name = "longcat_flash", .pairing = kInter, .output_pairing = kHalf, .theta = 1e7,
       .head_dim = 64, .unrotated_dim = 128, .rules = {.adapt = CheckHeadDimOrDefault}},
      {.name = "minicpm3", .head_dim = 32, .unrotated_dim = 64},
      {.name = "mistral4", .pairing = kInter, .output_pairing = kHalf, .partial_field = "",
       .block = mistral4_yarn, .head_dim = 64, .unrotated_dim = 64, .query_scale = QueryScaleFunction::kMinistral3,
       .rules = {.adapt = ReadInterleave, .block = ReadShareOfWholeHead, .settings = DropShare}},
      {.name = "mistral_large4_text", .pairing = kInter, .output_pairing = kHalf, .block = mistral_large4_yarn,
       .head_dim = 64, .unrotated_dim = 64, .pattern = kIgnoresTypes, .rules = NoRopeLayers(), .note = kLearnedScale},
      {.name = "sarvam_mla", .pairing = kInter, .output_pairing = kHalf,
       .head_dim = 64, .unrotated_dim = 128, .rules = {.adapt = ReadInterleave, .block = ReadSarvamYarn}},
      {.name = "youtu", .pairing = kInter, .output_pairing = kHalf,
       .head_dim = 64, .unrotated_dim = 128, .rules = {.adapt = ReadInterleaveAndHeadDim}},
  };
  // clang-format on
}

}  // namespace

const std::vector<ModelType>& LatentTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeLatentTypes());
  return types;
}

}  // namespace posenc
