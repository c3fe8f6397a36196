#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/methods/rope/query_scale.h"
#include "posenc/model/layers.h"
#include "posenc/model/parts.h"

namespace posenc {
namespace {

constexpr std::string_view kFullLayer = "hybrid", kSlidingLayer = "hybrid_sliding";

// Defaults of a class for absent fields.
struct InklingDefaults {
  int64_t heads, sliding_window;
  std::optional<double> n_floor;
};
constexpr InklingDefaults kInkling1 = {64, 512, std::nullopt}, kInkling2 = {48, 1024, 128000},
                          kInkling2Loop = {24, 1024, 8192};

const InklingDefaults& DefaultsOf(const Part& part) {
  return part.type.terms == Terms::kInkling1   ? kInkling1
         : part.type.terms == Terms::kInkling2 ? kInkling2
                                               : kInkling2Loop;
}

bool IsSecond(const Part& part) { return part.type.terms != Terms::kInkling1; }

// Returns the type of each layer: local_layer_ids has the sliding layers of Inkling 1.
absl::StatusOr<std::vector<std::string>> InklingTypes(const Part& part, int64_t layers) {
  constexpr std::string_view kField = "layer_types", kLocal = "local_layer_ids";
  if (IsSecond(part) || part.config.Find(kField) != nullptr || part.config.Find(kLocal) == nullptr) {
    POSENC_ASSIGN_OR_RETURN(std::vector<std::string> types, LayerTypes(part, layers));
    for (size_t n = 0; n < types.size(); ++n) {
      if (types[n] == kFullLayer || types[n] == kSlidingLayer) continue;
      return InvalidArgument("UNKNOWN_VALUE", fmt::format("{}[{}]", part.config.Path(kField), n), types[n],
                             fmt::format("must be {} or {}", kFullLayer, kSlidingLayer));
    }
    return types;
  }
  POSENC_ASSIGN_OR_RETURN(const auto local, part.config.Numbers(kLocal));
  std::vector<std::string> types(layers, std::string(kFullLayer));
  for (const double layer : *local) {
    if (layer >= 0 && layer < static_cast<double>(layers) &&
        layer == static_cast<double>(static_cast<int64_t>(layer))) {
      types[static_cast<int64_t>(layer)] = kSlidingLayer;
    }
  }
  return types;
}

// Returns a size of 1 or more, `otherwise` if it is absent.
absl::StatusOr<int64_t> InklingSize(const Part& part, std::initializer_list<std::string_view> names,
                                    int64_t otherwise) {
  POSENC_ASSIGN_OR_RETURN(const auto given, part.config.Integer(names));
  if (given.value_or(otherwise) >= 1) return given.value_or(otherwise);
  return InvalidArgument("OUT_OF_RANGE", part.config.PathOf(names), fmt::format("{}", *given), "must be at least 1");
}

// Reads tau of full layers. Inkling 1 has none if log_scaling_n_floor is null or absent.
absl::Status ReadTau(const Part& part, const InklingDefaults& defaults, InklingSettings* settings) {
  POSENC_ASSIGN_OR_RETURN(const auto n_floor, part.config.Number({"log_scaling_n_floor"}));
  POSENC_ASSIGN_OR_RETURN(const auto alpha, part.config.Number({"log_scaling_alpha"}));
  settings->log_scaling_n_floor = n_floor ? n_floor : defaults.n_floor;
  if (!settings->log_scaling_n_floor) return absl::OkStatus();
  settings->log_scaling_alpha = alpha.value_or(0.1);
  settings->scaled = IsSecond(part) ? InklingScaled::kStates : InklingScaled::kBias;
  return Within(part.config.path(), Check(QueryScale{.function = QueryScaleFunction::kInkling,
                                                     .log_scaling_alpha = settings->log_scaling_alpha,
                                                     .log_scaling_n_floor = settings->log_scaling_n_floor}));
}

void SayInkling(Part& part, std::string_view extent_field, int64_t d_rel, int64_t extent, const InklingSettings& tau) {
  part.Say("WEIGHTS", std::string(extent_field),
           fmt::format("bias of query i and key j: r_i times column i - j of the layer's proj, [{}, {}]; 0 beyond and "
                       "for keys after the query; not scaled by 1/sqrt(head_dim)",
                       d_rel, extent));
  part.Say("STATES", "d_rel",
           IsSecond(part) ? "q of the call is r: the layer's relative states after their learned scale and the clip of "
                            "their norm, before tau"
                          : "q of the call is r, the output of the layer's r_proj");
  if (!tau.scaled) return;
  part.Say(
      std::string(kQueryScaleNote), "log_scaling_n_floor",
      fmt::format("tau = 1 + {} * ln((p + 1) / {}) multiplies {} from {} {} on; the model multiplies its q, too: "
                  "query_scale with function inkling",
                  *tau.log_scaling_alpha, *tau.log_scaling_n_floor, IsSecond(part) ? "r" : "the bias",
                  IsSecond(part) ? "position" : "index in the cache", static_cast<int64_t>(*tau.log_scaling_n_floor)));
}

}  // namespace

absl::StatusOr<std::vector<ModelLayers>> InklingLayersOf(const Part& part, const ModelLayers& common) {
  const InklingDefaults& defaults = DefaultsOf(part);
  const auto layers = static_cast<int64_t>(common.layer_index.size());
  POSENC_ASSIGN_OR_RETURN(const std::vector<std::string> types, InklingTypes(part, layers));
  POSENC_ASSIGN_OR_RETURN(const int64_t d_rel, InklingSize(part, {"d_rel"}, 16));
  std::vector<ModelLayers> result;
  for (const std::string_view layer_type : {kSlidingLayer, kFullLayer}) {
    const bool slides = layer_type == kSlidingLayer;
    if (!types.empty() && std::find(types.begin(), types.end(), layer_type) == types.end()) continue;
    Part own = part;  // a copy: notes are per layer type
    ModelLayers entry = common;
    entry.layer_type = layer_type;
    entry.layer_index.clear();
    for (size_t n = 0; n < types.size(); ++n) {
      if (types[n] == layer_type) entry.layer_index.push_back(static_cast<uint32_t>(n));
    }
    if (!types.empty() && layers != 0 && static_cast<int64_t>(types.size()) != layers) {
      own.Say("LAYERS_DISAGREE", "layer_types",
              fmt::format("has {} entries, and num_hidden_layers is {}", types.size(), layers));
    }
    InklingSettings settings;
    if (!slides) POSENC_RETURN_IF_ERROR(ReadTau(own, defaults, &settings));
    POSENC_ASSIGN_OR_RETURN(const int64_t extent, slides ? InklingSize(own, {"sliding_window", "sliding_window_size"},
                                                                       defaults.sliding_window)
                                                         : InklingSize(own, {"rel_extent"}, 1024));
    POSENC_ASSIGN_OR_RETURN(
        const int64_t heads,
        InklingSize(own, {slides ? std::string_view("swa_num_attention_heads") : "num_attention_heads"},
                    defaults.heads));
    SayInkling(own, slides ? "sliding_window_size" : "rel_extent", d_rel, extent, settings);
    entry.terms = ModelTerms{.settings = settings, .heads = heads, .head_dim = d_rel, .rows = d_rel, .width = extent};
    entry.notes = std::move(own.notes);
    entry.fields = std::move(own.fields);
    result.push_back(std::move(entry));
  }
  return result;
}

}  // namespace posenc
