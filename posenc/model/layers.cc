#include "posenc/model/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "posenc/base/status.h"

namespace posenc {
namespace {

constexpr std::string_view kThetaPrefix = "rope_theta ";
constexpr size_t kLongestName = 64;  // of a layer type

// Returns the n of a field that selects every n-th layer; nullopt if it is absent.
absl::StatusOr<std::optional<int64_t>> EveryNth(const Part& part, std::initializer_list<std::string_view> names) {
  POSENC_ASSIGN_OR_RETURN(const auto every, part.config.Integer(names));
  if (every && *every < 1) {
    return InvalidArgument("OUT_OF_RANGE", part.config.PathOf(names), fmt::format("{}", *every), "must be at least 1");
  }
  return every;
}

// kNoRopeList. Ignores layer_types, which describes the layers' windows.
absl::StatusOr<std::vector<std::string>> FromNoRopeList(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(auto rope, part.config.Numbers("no_rope_layers"));
  if (rope && rope->empty()) rope.reset();
  if (rope && static_cast<int64_t>(rope->size()) != layers) {
    return InvalidArgument("MISMATCH", part.config.Path("no_rope_layers"), fmt::format("{} entries", rope->size()),
                           fmt::format("must have one entry per layer: {}", layers));
  }
  POSENC_ASSIGN_OR_RETURN(const auto interval, EveryNth(part, {"no_rope_layer_interval"}));
  const int64_t every = interval.value_or(4);
  std::vector<std::string> types;
  for (int64_t n = 0; n < layers; ++n) {
    types.emplace_back((rope ? (*rope)[n] != 0 : (n + 1) % every != 0) ? kRope : kNoRope);
  }
  return types;
}

std::string ThetaName(double theta) {
  return theta == 0 ? std::string(kNoRope) : fmt::format("{}{}", kThetaPrefix, theta);
}

// kThetaList: layers with equal theta share a type.
absl::StatusOr<std::vector<std::string>> FromThetaList(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(const auto thetas, part.config.Numbers("layer_rope_theta"));
  if (!thetas || static_cast<int64_t>(thetas->size()) < layers) {
    return InvalidArgument(thetas ? "MISMATCH" : "MISSING", part.config.Path("layer_rope_theta"),
                           thetas ? fmt::format("{} entries", thetas->size()) : "absent",
                           fmt::format("must have one entry per layer: {}", layers));
  }
  std::vector<std::string> types;
  const size_t count = layers > 0 ? static_cast<size_t>(layers) : thetas->size();  // entries beyond are not read
  for (size_t n = 0; n < count; ++n) {
    const bool flag = part.type.layers == Layers::kThetaFlags && (*thetas)[n] != 0;
    types.push_back(flag ? std::string(kRope) : ThetaName((*thetas)[n]));
  }
  return types;
}

// The types of a class whose file does not list them.
absl::StatusOr<std::vector<std::string>> FromPattern(const Part& part, int64_t layers) {
  const LayerPattern& pattern = part.type.pattern;
  std::vector<std::string> types;
  if (pattern.every == 0) return types;
  POSENC_ASSIGN_OR_RETURN(const auto cycle, part.config.Strings(pattern.cycle_field));
  POSENC_ASSIGN_OR_RETURN(const auto indices, part.config.Numbers(pattern.indices_field));
  std::optional<int64_t> given;
  if (!pattern.field.empty()) {
    POSENC_ASSIGN_OR_RETURN(given, EveryNth(part, {pattern.field, "_sliding_window_pattern"}));
  }
  POSENC_ASSIGN_OR_RETURN(const auto alternates, part.config.Bool(pattern.all_unless));
  const bool all = !pattern.all_unless.empty() && part.config.tree().contains(std::string(pattern.all_unless)) &&
                   !alternates.value_or(false);
  const int64_t every = given.value_or(pattern.every);
  for (size_t n = 0; cycle && n < cycle->size(); ++n) {  // each is copied for many layers
    if ((*cycle)[n].size() <= kLongestName) continue;
    return InvalidArgument("UNKNOWN_VALUE", fmt::format("{}[{}]", part.config.Path(pattern.cycle_field), n),
                           (*cycle)[n], "must be a layer type of transformers, such as recurrent or attention");
  }
  std::vector<double> listed = indices.value_or(std::vector<double>());
  std::sort(listed.begin(), listed.end());
  const auto period = std::find(pattern.cycle.begin(), pattern.cycle.end(), "") - pattern.cycle.begin();
  for (int64_t n = 0; n < layers; ++n) {
    if (cycle && !cycle->empty()) {
      types.push_back((*cycle)[n % cycle->size()]);
      continue;
    }
    if (!pattern.cycle[0].empty()) {
      types.emplace_back(n == 0 ? pattern.others : pattern.cycle[n % period]);
      continue;
    }
    const auto& own = pattern.indices;
    const bool regular = indices        ? std::binary_search(listed.begin(), listed.end(), n)
                         : !own.empty() ? std::find(own.begin(), own.end(), n) != own.end()
                                        : n % every == (pattern.at < 0 ? every - 1 : pattern.at % every);
    const bool is_last = n == layers - 1 && (pattern.last || pattern.last_always);
    types.emplace_back(all || regular || n < pattern.first || is_last ? pattern.full : pattern.others);
  }
  const bool none = std::find(types.begin(), types.end(), pattern.full) == types.end();
  if (pattern.last_if_none && none && !types.empty()) types.back() = pattern.full;
  return types;
}

// kSlidingOrDense: the first layers have a dense MLP and a pattern of their own, unless the file lists the types. A
// full_attention layer that rotates because of its MLP has type kRope.
absl::StatusOr<std::vector<std::string>> FromDenseLayers(const Part& part, int64_t layers) {
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
  std::vector<std::string> types;
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

// kMainOrCompressed: layers with a compressor, and those without. The file lists the layers' types, which may go on
// with those of layers for several tokens at once, or their rates of compression.
absl::StatusOr<std::vector<std::string>> FromCompressors(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(const auto listed, part.config.Strings("layer_types"));
  POSENC_ASSIGN_OR_RETURN(const auto rates, part.config.Numbers("compress_ratios"));
  const size_t given = listed ? listed->size() : rates ? rates->size() : static_cast<size_t>(layers);
  if (given < static_cast<size_t>(layers)) {
    return InvalidArgument("MISMATCH", part.config.PathOf({"layer_types", "compress_ratios"}),
                           fmt::format("{} entries", given), fmt::format("must have one entry per layer: {}", layers));
  }
  std::vector<std::string> types;
  for (int64_t n = 0; n < layers; ++n) {
    bool compressed = true;  // the class's default
    if (listed) {
      compressed = (*listed)[n] != "sliding_attention";
      if (compressed && (*listed)[n] != "compressed_sparse_attention" &&
          (*listed)[n] != "heavily_compressed_attention") {
        return InvalidArgument(
            "UNKNOWN_VALUE", fmt::format("{}[{}]", part.config.Path("layer_types"), n), (*listed)[n],
            "must be sliding_attention, compressed_sparse_attention or heavily_compressed_attention");
      }
    } else if (rates) {
      compressed = (*rates)[n] != 0;
    }
    types.emplace_back(compressed ? kCompress : kMain);
  }
  return types;
}

// The name of full attention with an indexer depends on use_dsa, true by default, in files of kByTypeCopied.
absl::Status NameIndexed(const Part& part, std::vector<std::string>& types) {
  if (part.type.layers != Layers::kByTypeCopied) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(auto indexed, part.config.Bool("use_dsa"));
  if (!indexed) {
    if (part.config.tree().contains("use_dsa") || part.config.Find("per_layer_config") != nullptr)
      return absl::OkStatus();
    indexed = true;
  }
  const std::string_view from = *indexed ? "full_attention" : "indexed_attention";
  const std::string_view to = *indexed ? "indexed_attention" : "full_attention";
  std::replace(types.begin(), types.end(), std::string(from), std::string(to));
  return absl::OkStatus();
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

absl::StatusOr<std::vector<std::string>> LayerTypes(const Part& part, int64_t layers) {
  if (part.type.layers == Layers::kNoRopeList) return FromNoRopeList(part, layers);
  if (part.type.layers == Layers::kThetaList || part.type.layers == Layers::kThetaFlags) {
    if (part.config.Find("layer_rope_theta") != nullptr) return FromThetaList(part, layers);
    std::vector<std::string> types;  // counted from the last layer
    if (part.type.pattern.every == 0) return types;
    for (int64_t left = layers - 1; left >= 0; --left) {
      types.emplace_back(left % part.type.pattern.every == 0 ? kNoRope : kRope);
    }
    return types;
  }
  if (part.type.layers == Layers::kSlidingOrDense) return FromDenseLayers(part, layers);
  if (part.type.layers == Layers::kMainOrCompressed) return FromCompressors(part, layers);
  std::optional<std::vector<std::string>> listed;
  for (std::string_view field : {"layer_types", "layers_block_type"}) {
    if (listed || part.type.pattern.ignores_list) break;
    POSENC_ASSIGN_OR_RETURN(listed, part.config.Strings(field));
  }
  if (listed && part.type.pattern.last_always && !listed->empty()) listed->back() = part.type.pattern.full;
  if (!listed) {
    POSENC_ASSIGN_OR_RETURN(listed, FromPattern(part, layers));
  }
  std::vector<std::string> types = *std::move(listed);
  POSENC_ASSIGN_OR_RETURN(const bool lists_mlps, ListsMlps(part));
  if (lists_mlps) {  // each layer's first entry is its attention
    for (size_t n = 0; 2 * n < types.size(); ++n) types[n] = types[2 * n];
    types.resize((types.size() + 1) / 2);
  }
  if (part.type.layers == Layers::kByTypeFromLists) {  // the list may go on with layers for several tokens at once
    POSENC_ASSIGN_OR_RETURN(const auto more, part.config.Integer({"num_nextn_predict_layers"}));
    if (static_cast<int64_t>(types.size()) == layers + more.value_or(0)) types.resize(layers);
  }
  POSENC_RETURN_IF_ERROR(NameIndexed(part, types));
  return types;
}

bool LeavesOut(const Part& part, std::string_view layer_type) {
  switch (part.type.layers) {
    case Layers::kSlidingOnly: return layer_type == "full_attention" || !HasAttention(layer_type);
    case Layers::kSlidingOnlyInWindow:
    case Layers::kSlidingOrDense:
      return layer_type != kRope && (layer_type == "full_attention" || (part.config.tree().contains("sliding_window") &&
                                                                        part.config.Find("sliding_window") == nullptr));
    case Layers::kHybridOnly: return layer_type != "hybrid";
    case Layers::kSlidingOnlyIfWindow:
      return layer_type == "full_attention" &&
             !(part.config.tree().contains("sliding_window") && part.config.Find("sliding_window") == nullptr);
    case Layers::kNoRopeList:
    case Layers::kThetaList:
    case Layers::kThetaFlags: return layer_type == kNoRope;
    default: return !HasAttention(layer_type);
  }
}

bool HasAttention(std::string_view layer_type) {
  for (std::string_view other : {"linear_attention", "conv", "mamba", "recurrent", "moe", "mlp", "cross_attention"}) {
    if (layer_type == other) return false;
  }
  return true;
}

std::optional<double> ThetaOf(const Part& part, std::string_view layer_type) {
  if (part.type.layers != Layers::kThetaList || !layer_type.starts_with(kThetaPrefix)) return std::nullopt;
  double theta = 0;
  layer_type.remove_prefix(kThetaPrefix.size());
  std::from_chars(layer_type.data(), layer_type.data() + layer_type.size(), theta);
  return theta;
}

}  // namespace posenc
