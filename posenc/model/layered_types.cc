// Model types whose layers differ: only some have a rotary embedding, or each type of layers has a block of its own.
// Taken from transformers 5.24; scripts/check-model-types compares every row with an installed release.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <tuple>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/gguf/gguf_types.h"
#include "posenc/model/class_rules.h"

namespace posenc {
namespace {

using enum Layers;

constexpr Pairing kInter = Pairing::kInterleaved;
constexpr Precision kF32 = kF32Precision;
constexpr Precision kVllm = kVllmPrecision;
constexpr std::string_view kSliding = "sliding_attention";
constexpr std::string_view kFull = "full_attention";

// clang-format off
constexpr LayerPattern kAllFull = {.every = 1, .field = ""};
constexpr LayerPattern kEvery6thAndLastAreFull = {.every = 6, .field = "", .last_always = true};
constexpr LayerPattern kEvery6thNeedsBoth = {.every = 6, .needs_full = true, .needs_others = true};
constexpr LayerPattern kLaraMini = {.every = 1, .field = "", .others = "linear_attention"};
constexpr LayerPattern kLfm3 = {.every = 1, .field = "", .others = "conv"};
constexpr LayerPattern kMuse = {.every = 4, .ignores_list = true};
constexpr std::string_view kLaraMiniCycle[] = {
    "linear_attention", kSliding, "linear_attention", kFull, kSliding};
constexpr std::string_view kLfm3Cycle[] = {kSliding, "conv", kFull, "conv"};
// clang-format on

// Types that repeat from layer 1 on. Layer 0 has pattern.others.
template <const auto& kCycle>
absl::StatusOr<LayerTypeNames> TypesOfCycle(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(const auto listed, ListedTypes(part));
  if (listed) return *listed;
  LayerTypeNames types;
  for (int64_t n = 0; n < layers; ++n) {
    types.emplace_back(n == 0 ? part.type.pattern.others : kCycle[n % std::size(kCycle)]);
  }
  return types;
}

constexpr std::string_view kThetaPrefix = "rope_theta ";
constexpr std::string_view kThetas = "layer_rope_theta";

// layer_rope_theta has each layer's theta, 0: no rotary embedding. Without it, every n-th layer back from the last has
// none.
absl::StatusOr<LayerTypeNames> TypesByTheta(const Part& part, int64_t layers, std::string (*name)(double)) {
  LayerTypeNames types;
  if (part.config.Find(kThetas) == nullptr) {
    const int64_t every = part.type.pattern.every;
    for (int64_t left = layers - 1; left >= 0 && every != 0; --left) {
      types.emplace_back(left % every == 0 ? kNoRope : kRope);
    }
    return types;
  }
  POSENC_ASSIGN_OR_RETURN(const auto thetas, part.config.Numbers(kThetas));
  if (static_cast<int64_t>(thetas->size()) < layers) {
    return InvalidArgument("MISMATCH", part.config.Path(kThetas), fmt::format("{} entries", thetas->size()),
                           fmt::format("must have one entry per layer: {}", layers));
  }
  const size_t count = layers > 0 ? static_cast<size_t>(layers) : thetas->size();  // entries beyond are not read
  for (size_t n = 0; n < count; ++n) types.push_back((*thetas)[n] == 0 ? std::string(kNoRope) : name((*thetas)[n]));
  return types;
}

// Granite: layers with equal theta share a type.
absl::StatusOr<LayerTypeNames> TypesByListedTheta(const Part& part, int64_t layers) {
  return TypesByTheta(part, layers, [](double theta) { return fmt::format("{}{}", kThetaPrefix, theta); });
}

absl::StatusOr<LayerBlock> BlockWithListedTheta(Part& part, const RopeBlocks& blocks, const std::string& layer_type,
                                                const LayerTypeNames&) {
  POSENC_ASSIGN_OR_RETURN(LayerBlock own, UsualBlock(part, blocks, layer_type));
  if (own.block && layer_type.starts_with(kThetaPrefix)) {
    double theta = 0;
    std::from_chars(layer_type.data() + kThetaPrefix.size(), layer_type.data() + layer_type.size(), theta);
    own.block->parameters.rope_theta = theta;
  }
  return own;
}

// Muse: an entry other than 0 only says that the layer rotates.
absl::StatusOr<LayerTypeNames> TypesByThetaFlag(const Part& part, int64_t layers) {
  return TypesByTheta(part, layers, [](double) { return std::string(kRope); });
}

absl::StatusOr<LayerBlock> BlockOfMuse(Part& part, const RopeBlocks& blocks, const std::string& layer_type,
                                       const LayerTypeNames&) {
  if (part.config.Find(kThetas) != nullptr) {
    part.Say("NOT_USED", std::string(kThetas),
             fmt::format("model_type \"{}\" reads only which entries are 0: theta is the block's", part.type.name));
  }
  return UsualBlock(part, blocks, layer_type);
}

// Cohere 2 MoE: the first layers have a dense MLP and a pattern of their own, unless the file lists the types. A
// full_attention layer that rotates because of its MLP has type kRope.
absl::StatusOr<LayerTypeNames> TypesByDenseLayers(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(const auto listed, part.config.Strings("layer_types"));
  POSENC_ASSIGN_OR_RETURN(const auto mlps, part.config.Strings("mlp_layer_types"));
  POSENC_ASSIGN_OR_RETURN(const auto dense, part.config.Integer({"first_k_dense_replace"}));
  POSENC_ASSIGN_OR_RETURN(const auto own_every, EveryNth(part, {"prefix_dense_sliding_window_pattern"}));
  POSENC_ASSIGN_OR_RETURN(const auto every, EveryNth(part, {part.type.pattern.field}));
  const int64_t first = dense.value_or(0);
  if (first > layers && layers > 0) {
    return InvalidArgument("OUT_OF_RANGE", part.config.Path("first_k_dense_replace"), fmt::format("{}", first),
                           fmt::format("must be at most the number of layers, {}", layers));
  }
  for (const auto& [field, list] : {std::pair{"layer_types", &listed}, {"mlp_layer_types", &mlps}}) {
    if (*list && layers > 0 && static_cast<int64_t>((*list)->size()) != layers) {
      return InvalidArgument("MISMATCH", part.config.Path(field), fmt::format("{} entries", (*list)->size()),
                             fmt::format("must have one entry per layer: {}", layers));
    }
  }
  LayerTypeNames types;
  for (int64_t n = 0; n < layers; ++n) {
    const bool in_front = n < first;
    const int64_t place = in_front ? n + 1 : n + 1 - first;
    const int64_t period = in_front ? own_every.value_or(1) : every.value_or(part.type.pattern.every);
    const std::string type = listed ? (*listed)[n] : place % period != 0 ? "sliding_attention" : "full_attention";
    const bool is_dense = mlps ? (*mlps)[n] == "dense" : in_front;
    types.push_back(is_dense && own_every.value_or(1) == 1 ? std::string(kRope) : type);
  }
  return types;
}

absl::StatusOr<LayerTypeNames> Step3p5Types(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(LayerTypeNames types, ListedOrPattern(part, layers));
  // The list may go on with layers for several tokens at once.
  if (layers > 0 && static_cast<int64_t>(types.size()) > layers) types.resize(layers);
  return types;
}

absl::Status TooFewEntries(const Part& part, std::string_view field, size_t entries) {
  return InvalidArgument("MISMATCH", part.config.Path(field), fmt::format("{} entries", entries),
                         "must have one entry per layer");
}

// Returns entry `layer` of a field that is a list with an entry for each layer, or a number for all; nullopt if it is
// absent or empty.
absl::StatusOr<std::optional<double>> EntryOf(const Part& part, std::string_view field, size_t layer) {
  const nlohmann::json* given = part.config.Find(field);
  if (given == nullptr || !given->is_array()) return part.config.Number({field});
  POSENC_ASSIGN_OR_RETURN(const auto list, part.config.Numbers(field));
  if (list->empty()) return std::nullopt;
  if (layer >= list->size()) return TooFewEntries(part, field, list->size());
  return (*list)[layer];
}

// Notes entries of a list that differ from the one which all layers of the type have.
absl::Status NoteOtherEntries(Part& part, std::string_view field, const std::string& layer_type, double used,
                              const LayerTypeNames& of_layer) {
  const nlohmann::json* given = part.config.Find(field);
  if (given == nullptr || !given->is_array()) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(const auto list, part.config.Numbers(field));
  for (size_t n = 0; n < of_layer.size(); ++n) {
    if (of_layer[n] != layer_type) continue;
    if (n >= list->size()) return TooFewEntries(part, field, list->size());
    const double entry = (*list)[n];
    if (entry == used) continue;
    part.Say("NOT_USED", fmt::format("{}[{}]", part.config.Path(field), n),
             fmt::format("{} is ignored: all layers of type \"{}\" have the entry of the first one, {}", entry,
                         Quote(layer_type), used));
  }
  return absl::OkStatus();
}

// Step 3.5: blocks count only if rope_parameters has one for each type of the layers.
absl::StatusOr<LayerBlock> BlockFromLists(Part& part, const RopeBlocks& blocks, const std::string& layer_type,
                                          const LayerTypeNames& of_layer) {
  const auto block_of = [&blocks](const std::string& type) {
    return std::find_if(blocks.begin(), blocks.end(), [&](const auto& b) { return b.first == type && b.second; });
  };
  const auto has_block = [&](const std::string& type) { return block_of(type) != blocks.end(); };
  const bool has_own = part.config.Find("rope_parameters") != nullptr && has_block(layer_type) &&
                       std::all_of(of_layer.begin(), of_layer.end(), has_block);
  if (has_own) return LayerBlock{block_of(layer_type)->second, part.type.theta, "", false};

  const auto first = std::find(of_layer.begin(), of_layer.end(), layer_type);
  const auto layer = first == of_layer.end() ? size_t{0} : static_cast<size_t>(first - of_layer.begin());
  RopeBlock block;
  block.complete = true;
  block.path = part.config.Path("rope_parameters");
  block.parameters.rope_type = "default";
  const bool scales = part.config.Find("rope_scaling") != nullptr && !blocks.empty();
  if (scales && IsByLayerType(blocks)) {
    return InvalidArgument("UNSUPPORTED", part.config.Path("rope_scaling"), "blocks of layer types",
                           fmt::format("must be one block for model_type \"{}\"", part.type.name));
  }
  if (scales && layer_type == "full_attention") {
    block = *blocks[0].second;
    block.complete = true;
    if (block.type_key == "type") LeaveDefault(part, block);
  } else if (!blocks.empty()) {
    part.Say("NOT_USED", BlocksPath(part),
             scales ? fmt::format("model_type \"{}\" reads it for full_attention layers only", part.type.name)
                    : fmt::format("model_type \"{}\" ignores it unless it has a block for each type of its layers",
                                  part.type.name));
  }
  RopeParameters& p = block.parameters;
  for (const auto& [field, setting, used] :
       {std::tuple{"rope_theta", "rope_theta", &p.rope_theta},
        {"partial_rotary_factors", "partial_rotary_factor", &p.partial_rotary_factor}}) {
    if (*used) continue;
    POSENC_ASSIGN_OR_RETURN(*used, EntryOf(part, field, layer));
    if (!*used) continue;
    part.Comes(fmt::format("rope_parameters.{}", setting), part.config.Path(field));
    POSENC_RETURN_IF_ERROR(NoteOtherEntries(part, field, layer_type, **used, of_layer));
  }
  return LayerBlock{std::move(block), part.type.theta, "", true};
}

std::vector<ModelType> MakeLayeredTypes() {
  const RopeParameters muse_spark_default = {.rope_type = "default", .rope_theta = 500000};

  // Default blocks of layer types. A layer type that a list omits has no rotary embedding by default.
  // clang-format off
  using Blocks = std::vector<LayerDefaults>;
  const Blocks beam = {{.layer_type = kSliding, .rope_theta = 10000}};
  const Blocks deepseek_v4 = {
      {.layer_type = "main", .rope_theta = 10000, .partial = 0.125},
      {.layer_type = "compress", .rope_theta = 160000, .partial = 0.125}};
  const Blocks dory = {
      {.layer_type = kSliding, .rope_theta = 10000},
      {.layer_type = kFull, .rope_theta = 1e7}};
  const Blocks gemma3 = {
      {.layer_type = kSliding, .rope_theta = 10000, .theta_field = "rope_local_base_freq"},
      {.layer_type = kFull, .rope_theta = 1e6, .theta_field = "rope_theta", .takes_rope_scaling = true}};
  const Blocks gemma4 = {
      {.layer_type = kSliding, .rope_theta = 10000},
      {.layer_type = kFull, .rope_theta = 1e6, .rope_type = "proportional", .partial = 0.25,
       .head_dim_field = "global_head_dim", .head_dim = 512}};
  const Blocks embedding_gemma2 = {
      {.layer_type = kSliding, .rope_theta = 10000},
      {.layer_type = kFull, .rope_theta = 1e6, .head_dim_field = "global_head_dim", .head_dim = 512}};
  const Blocks laguna = {
      {.layer_type = kFull, .rope_theta = 500000, .partial = 0.5},
      {.layer_type = kSliding, .rope_theta = 10000, .partial = 1}};
  const Blocks lfm3 = {
      {.layer_type = kSliding, .rope_theta = 10000},
      {.layer_type = kFull, .rope_theta = 1e6, .rope_type = "proportional", .partial = 0.5}};
  const Blocks mellum = {
      {.layer_type = kFull, .rope_theta = 500000},
      {.layer_type = kSliding, .rope_theta = 10000}};
  const Blocks mimo = {
      {.layer_type = kFull, .rope_theta = 5e6, .partial = 0.334, .partial_of_default = true},
      {.layer_type = kSliding, .rope_theta = 10000, .partial = 0.334, .partial_of_default = true}};
  const Blocks modernbert = {
      {.layer_type = kSliding, .rope_theta = 10000, .theta_field = "local_rope_theta", .takes_rope_scaling = true},
      {.layer_type = kFull, .rope_theta = 160000, .theta_field = "global_rope_theta", .takes_rope_scaling = true}};
  const Blocks olmo3 = {
      {.layer_type = kSliding, .rope_theta = 500000},
      {.layer_type = kFull, .rope_theta = 500000, .theta_field = "rope_theta", .takes_rope_scaling = true}};
  const Blocks step3p5 = {{.layer_type = kFull}, {.layer_type = kSliding}};
  const Blocks ultrabert = {
      {.layer_type = kSliding, .rope_theta = 10000},
      {.layer_type = kFull, .rope_theta = 2560000}};
  const Blocks zaya = {
      {.layer_type = "hybrid", .rope_theta = 5e6, .partial = 0.5},
      {.layer_type = "hybrid_sliding", .rope_theta = 10000, .partial = 0.5}};
  // clang-format on

  const ClassRules cohere2_moe = {.layer_types = TypesByDenseLayers, .fields = {"first_k_dense_replace"}};
  const ClassRules listed_thetas = {.layer_types = TypesByListedTheta, .layer_block = BlockWithListedTheta};
  const ClassRules muse = {
      .layer_types = TypesByThetaFlag, .all_layer_types = {kRope, kNoRope}, .layer_block = BlockOfMuse};
  const ClassRules v4 = DeepseekV4Rules();

  // clang-format off
  return {
      // Rotary embedding on some layers only.
      {.name = "afmoe", .head_dim = 128, .layers = kSlidingOnly, .pattern = {4, "global_attn_every_n_layers"}},
      {.name = "cohere2", .pairing = kInter, .precision = kVllm,
       .width = {8192, 64}, .layers = kSlidingOnlyInWindow, .pattern = {4}},
      {.name = "cohere2_moe", .pairing = kInter, .precision = kVllm, .block_in = BlockIn::kRopeParameters, .head_dim = 128,
       .layers = kSlidingOnlyInWindow, .pattern = {4}, .rules = cohere2_moe},
      {.name = "exaone4", .width = {4096, 32}, .layers = kSlidingOnlyIfWindow, .pattern = {4}},
      {.name = "exaone_moe", .layers = kSlidingOnlyIfWindow, .pattern = {4}},
      {.name = "flint", .head_dim = 128, .layers = kSlidingOnly,
       .pattern = {.every = 4, .field = "", .last = true, .at = 1, .first = 1}},
      {.name = "granite_swa", .pattern = kIgnoresTypes, .rules = listed_thetas},
      {.name = "granitemoe_swa", .pattern = kIgnoresTypes, .rules = listed_thetas},
      {.name = "kolibri1", .head_dim = 128, .layers = kSlidingOnlyIfWindow, .pattern = {5, ""}},
      {.name = "lara_mini", .head_dim = 128, .layers = kSlidingOnly, .pattern = kLaraMini, .rules = {.layer_types = TypesOfCycle<kLaraMiniCycle>}},
      {.name = "llama4_text", .pairing = kInter, .precision = kF32, .theta = 500000,
       .head_dim = 128, .pattern = kIgnoresTypes, .query_scale = QueryScaleFunction::kLlama4, .rules = NoRopeLayers()},
      {.name = "muse_glimmer_text", .head_dim = 128, .pattern = kMuse, .rules = muse},
      {.name = "muse_spark_text", .block = muse_spark_default, .head_dim = 64, .pattern = kMuse, .rules = muse},
      {.name = "smollm3", .theta = 2e6, .pattern = kIgnoresTypes, .rules = NoRopeLayers()},

      // One block per layer type.
      {.name = "beam", .precision = kF32, .head_dim = 128, .layers = kByType, .pattern = {.every = 6, .field = "", .last = true}, .by_layer = beam,
       .query_scale = QueryScaleFunction::kBeam},
      {.name = "deepseek_v4", .pairing = kInter, .precision = kVllm, .partial = 0.125,
       .head_dim = 512, .layers = kByType, .by_layer = deepseek_v4, .rules = v4, .note = kDeepseekV4Note},
      {.name = "diffusion_gemma_text", .partial = 1,
       .head_dim = 256, .layers = kByType, .pattern = {.every = 6, .field = "", .last_always = true, .needs_others = true}, .by_layer = gemma4},
      {.name = "dory", .head_dim = 256, .layers = kByType, .pattern = {.every = 4, .field = "", .lists_mlps = true}, .by_layer = dory, .block_theta = 10000},
      {.name = "embedding_gemma2_text", .head_dim = 256, .layers = kByType, .pattern = {.every = 6, .last_always = true}, .by_layer = embedding_gemma2},
      {.name = "gemma3_text", .head_dim = 256, .layers = kByTypeFilled, .pattern = {6}, .by_layer = gemma3},
      {.name = "gemma3n_text", .head_dim = 256, .layers = kByTypeFilled, .pattern = {.every = 5, .field = ""}, .by_layer = gemma3},
      {.name = "gemma4_text", .head_dim = 256, .layers = kByType, .pattern = kEvery6thAndLastAreFull, .by_layer = gemma4},
      {.name = "gemma4_unified_text", .head_dim = 256, .layers = kByType, .pattern = kEvery6thAndLastAreFull, .by_layer = gemma4},
      {.name = "laguna", .partial = 1, .head_dim = 128, .layers = kByType, .pattern = kAllFull, .by_layer = laguna},
      {.name = "lfm3", .precision = kF32, .head_dim = 128, .layers = kByType, .pattern = kLfm3, .by_layer = lfm3,
       .block_theta = 1e6, .rules = {.layer_types = TypesOfCycle<kLfm3Cycle>}},
      {.name = "mellum", .head_dim = 128, .layers = kByType, .pattern = kAllFull, .by_layer = mellum},
      {.name = "mimo_v2_flash", .partial = 1, .head_dim = 192, .layers = kByType, .pattern = {.every = 6, .field = "", .first = 1}, .by_layer = mimo},
      {.name = "modernbert", .precision = kVllm, .width = {768, 12}, .layers = kByTypeFilled,
       .pattern = {.every = 3, .field = "global_attn_every_n_layers", .at = 0}, .by_layer = modernbert},
      {.name = "modernbert-decoder", .precision = kVllm, .layers = kByTypeFilled,
       .pattern = {.every = 3, .field = "global_attn_every_n_layers", .at = 0}, .by_layer = modernbert},
      {.name = "olmo3", .precision = kF32, .layers = kByTypeFilled, .pattern = {4, ""}, .by_layer = olmo3},
      {.name = "step3p5", .partial = 1, .head_dim = 128, .layers = kByType, .pattern = kAllFull, .by_layer = step3p5,
       .rules = {.layer_types = Step3p5Types, .layer_block = BlockFromLists}},
      {.name = "t5gemma2_decoder", .head_dim = 256, .layers = kByTypeFilled, .pattern = kEvery6thNeedsBoth, .by_layer = gemma3},
      {.name = "t5gemma2_text", .head_dim = 256, .layers = kByTypeFilled, .pattern = kEvery6thNeedsBoth, .by_layer = gemma3},
      {.name = "ultrabert", .width = {4096, 32}, .layers = kByType, .pattern = {3, ""}, .by_layer = ultrabert, .block_theta = 10000},
      {.name = "zaya", .partial = 1, .head_dim = 128, .layers = kByType, .pattern = {.every = 1, .field = "", .full = "hybrid"}, .by_layer = zaya},
  };
  // clang-format on
}

}  // namespace

const std::vector<ModelType>& LayeredTypes() {
  static const std::vector<ModelType>& types = *new std::vector<ModelType>(MakeLayeredTypes());
  return types;
}

}  // namespace posenc
