#include "posenc/model/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "posenc/base/status.h"

namespace posenc {

absl::StatusOr<std::optional<int64_t>> EveryNth(const Part& part, std::initializer_list<std::string_view> names) {
  POSENC_ASSIGN_OR_RETURN(const auto every, part.config.Integer(names));
  if (every && *every < 1) {
    return InvalidArgument("OUT_OF_RANGE", part.config.PathOf(names), fmt::format("{}", *every), "must be at least 1");
  }
  return every;
}

namespace {

// The types of a class whose file does not list them.
absl::StatusOr<LayerTypeNames> FromPattern(const Part& part, int64_t layers) {
  const LayerPattern& pattern = part.type.pattern;
  LayerTypeNames types;
  if (pattern.every == 0) return types;
  POSENC_ASSIGN_OR_RETURN(const auto indices, part.config.Numbers(pattern.indices_field));
  std::optional<int64_t> given;
  if (!pattern.field.empty()) {
    POSENC_ASSIGN_OR_RETURN(given, EveryNth(part, {pattern.field, "_sliding_window_pattern"}));
  }
  const int64_t every = given.value_or(pattern.every);
  std::vector<double> listed = indices.value_or(std::vector<double>());
  std::sort(listed.begin(), listed.end());
  for (int64_t n = 0; n < layers; ++n) {
    const bool regular = indices ? std::binary_search(listed.begin(), listed.end(), n)
                                 : n % every == (pattern.at < 0 ? every - 1 : pattern.at % every);
    const bool is_last = n == layers - 1 && (pattern.last || pattern.last_always);
    types.emplace_back(regular || n < pattern.first || is_last ? pattern.full : pattern.others);
  }
  return types;
}

// True if the file lists attentions and mlps as blocks of their own, and the class makes one layer of two blocks.
absl::StatusOr<bool> ListsMlps(const Part& part) {
  if (!part.type.pattern.lists_mlps) return false;
  POSENC_ASSIGN_OR_RETURN(const auto listed, part.config.Strings("layer_types"));
  return listed && std::find(listed->begin(), listed->end(), "mlp") != listed->end();
}

}  // namespace

absl::StatusOr<int64_t> LayerCount(const Part& part) {
  const std::initializer_list<std::string_view> names = {
      "num_layers_per_stack", "num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"};
  POSENC_ASSIGN_OR_RETURN(const auto counted, part.config.Integer(names));
  const int64_t layers = counted.value_or(0);
  if (layers > kMaxLayers) {
    return InvalidArgument("OUT_OF_RANGE", part.config.PathOf(names), fmt::format("{}", layers),
                           fmt::format("must be at most {}", kMaxLayers));
  }
  POSENC_ASSIGN_OR_RETURN(const bool lists_mlps, ListsMlps(part));
  return lists_mlps ? layers / 2 : layers;
}

absl::StatusOr<std::optional<LayerTypeNames>> ListedTypes(const Part& part) {
  std::optional<LayerTypeNames> listed;
  for (std::string_view field : {"layer_types", "layers_block_type"}) {
    if (listed || part.type.pattern.ignores_list) break;
    POSENC_ASSIGN_OR_RETURN(listed, part.config.Strings(field));
  }
  return listed;
}

absl::StatusOr<LayerTypeNames> ListedOrPattern(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(auto listed, ListedTypes(part));
  if (!listed) return FromPattern(part, layers);
  LayerTypeNames types = *std::move(listed);
  if (part.type.pattern.last_always && !types.empty()) types.back() = part.type.pattern.full;
  POSENC_ASSIGN_OR_RETURN(const bool lists_mlps, ListsMlps(part));
  if (lists_mlps) {  // each layer's first entry is its attention
    for (size_t n = 0; 2 * n < types.size(); ++n) types[n] = types[2 * n];
    types.resize((types.size() + 1) / 2);
  }
  return types;
}

absl::StatusOr<LayerTypeNames> LayerTypes(const Part& part, int64_t layers) {
  const auto own = part.type.rules.layer_types;
  return own == nullptr ? ListedOrPattern(part, layers) : own(part, layers);
}

bool LeavesOut(const Part& part, std::string_view layer_type) {
  if (layer_type == kRope) return false;
  if (layer_type == kNoRope || !HasAttention(layer_type)) return true;
  const bool full = layer_type == "full_attention", no_window = part.config.IsNull("sliding_window");
  switch (part.type.layers) {
    case Layers::kSlidingOnly: return full;
    case Layers::kSlidingOnlyInWindow: return full || no_window;
    case Layers::kSlidingOnlyIfWindow: return full && !no_window;
    default: return false;
  }
}

bool HasAttention(std::string_view layer_type) {
  for (std::string_view other : {"linear_attention", "conv", "mamba", "recurrent", "moe", "mlp", "cross_attention"}) {
    if (layer_type == other) return false;
  }
  return true;
}

}  // namespace posenc
