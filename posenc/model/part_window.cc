#include "posenc/model/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "posenc/base/status.h"

namespace posenc {

absl::StatusOr<Window> SizeOf(const ConfigObject& config, std::string_view field, Window otherwise) {
  const nlohmann::json* value = config.Find(field);
  Window size = otherwise;
  if (value != nullptr && value->is_array()) {
    POSENC_ASSIGN_OR_RETURN(const auto numbers, config.Numbers(field));
    if (numbers->size() != 2) {
      return InvalidArgument("MISMATCH", config.Path(field), fmt::format("{} numbers", numbers->size()),
                             "must be one number, or height and width");
    }
    constexpr double kMost = 1 << 30;
    for (double number : *numbers) {
      if (number >= 1 && number <= kMost && number == std::floor(number)) continue;
      return InvalidArgument("OUT_OF_RANGE", config.Path(field), value->dump(), "must be whole numbers, 1 .. 2^30");
    }
    size = {static_cast<int64_t>((*numbers)[0]), static_cast<int64_t>((*numbers)[1])};
  } else if (value != nullptr) {
    POSENC_ASSIGN_OR_RETURN(const auto number, config.Integer({field}));
    size = {*number, *number};
  }
  if (size.height >= 1 && size.width >= 1) return size;
  return InvalidArgument("OUT_OF_RANGE", config.Path(field), value->dump(), "must be at least 1");
}

absl::StatusOr<int64_t> CountOf(const ConfigObject& config, std::string_view field, int64_t length, int64_t size,
                                int64_t step) {
  constexpr int64_t kMost = 65536;
  const int64_t count = step > 0 ? (length - size) / step + 1 : length / size;
  if (length >= size && count <= kMost) return count;
  return InvalidArgument("OUT_OF_RANGE", config.Path(field), fmt::format("{}", length),
                         fmt::format("must be at least {} and give at most {} patches per side", size, kMost));
}

absl::StatusOr<Window> PatchesOf(const ConfigObject& config, std::string_view field, Window otherwise,
                                 int64_t patch_otherwise) {
  POSENC_ASSIGN_OR_RETURN(const Window image, SizeOf(config, field, otherwise));
  POSENC_ASSIGN_OR_RETURN(const Window patch, SizeOf(config, "patch_size", patch_otherwise));
  Window patches;
  POSENC_ASSIGN_OR_RETURN(patches.height, CountOf(config, field, image.height, patch.height));
  POSENC_ASSIGN_OR_RETURN(patches.width, CountOf(config, field, image.width, patch.width));
  return patches;
}

absl::StatusOr<SwinSettings> SwinOf(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const Window window, SizeOf(part.config, "window_size", part.type.windows.window_size));
  const nlohmann::json* size = part.config.Find("window_size");
  const bool is_list = size != nullptr && size->is_array();
  part.Comes("swin.window_height", part.config.Path("window_size") + (is_list ? "[0]" : ""));
  part.Comes("swin.window_width", part.config.Path("window_size") + (is_list ? "[1]" : ""));
  part.Say("TABLE_BY_LAYER", "window_size",
           "every layer has its own table; in a stage smaller than the window, the window is the whole stage");
  return SwinSettings{window};
}

namespace {

// Reads one integer, 0 .. 100000, per stage. The class ignores what a longer list has after these; a note says so.
absl::StatusOr<std::vector<int64_t>> ByStage(const ConfigObject& config, std::string_view field, size_t stages,
                                             const std::vector<double>& otherwise, std::vector<Note>& notes) {
  POSENC_ASSIGN_OR_RETURN(const auto given, config.Numbers(field));
  std::vector<double> numbers = given ? *given : otherwise;
  if (numbers.size() < stages) {
    return InvalidArgument(given ? "MISMATCH" : "MISSING", config.Path(field),
                           given ? fmt::format("{} numbers", numbers.size()) : "",
                           fmt::format("must be one number per stage, as in depths: {}", stages));
  }
  if (numbers.size() > stages) {
    notes.push_back({"NOT_USED", config.Path(field),
                     fmt::format("the numbers after the first {}, the stages in depths, are not read", stages)});
    numbers.resize(stages);
  }
  constexpr double kMost = 100000;
  for (double number : numbers) {
    if (number >= 0 && number <= kMost && number == std::floor(number)) continue;
    return InvalidArgument("OUT_OF_RANGE", config.Path(field), fmt::format("{}", number),
                           "must be a whole number, 0 .. 100000");
  }
  return std::vector<int64_t>(numbers.begin(), numbers.end());
}

}  // namespace

absl::StatusOr<std::vector<ModelLayers>> SwinV2Of(const Part& part, const ModelLayers& common) {
  const ConfigObject& config = part.config;
  constexpr size_t kMostStages = 16;
  const SwinWindows& own = part.type.windows;
  POSENC_ASSIGN_OR_RETURN(const auto depths, config.Numbers("depths"));
  if (!depths || depths->empty() || depths->size() > kMostStages) {
    return InvalidArgument(depths ? "OUT_OF_RANGE" : "MISSING", config.Path("depths"),
                           depths ? fmt::format("{} stages", depths->size()) : "",
                           fmt::format("must be the number of layers of each stage, for 1 .. {} stages", kMostStages));
  }
  const size_t stages = depths->size();
  std::vector<Note> notes = part.notes;
  POSENC_ASSIGN_OR_RETURN(const std::vector<int64_t> layers, ByStage(config, "depths", stages, {}, notes));
  POSENC_ASSIGN_OR_RETURN(const std::vector<int64_t> heads, ByStage(config, "num_heads", stages, {}, notes));
  std::vector<int64_t> pretrained(stages);
  if (own.halves) {
    const std::vector<double> zeros(std::min<size_t>(stages, 4));  // the class's default is for four stages
    POSENC_ASSIGN_OR_RETURN(pretrained, ByStage(config, "pretrained_window_sizes", stages, zeros, notes));
  }
  POSENC_ASSIGN_OR_RETURN(const Window window, SizeOf(config, "window_size", own.window_size));
  POSENC_ASSIGN_OR_RETURN(const Window image, SizeOf(config, "image_size", own.image_size));
  POSENC_ASSIGN_OR_RETURN(const Window patch, SizeOf(config, "patch_size", own.patch_size));

  const double count = std::accumulate(depths->begin(), depths->end(), 0.0);
  if (count > kMaxLayers) {
    return InvalidArgument("OUT_OF_RANGE", config.Path("depths"), fmt::format("{} layers in all", count),
                           fmt::format("must be at most {}", kMaxLayers));
  }
  std::vector<ModelLayers> result;
  bool alike = true;
  uint32_t first = 0;
  for (size_t n = 0; n < stages; ++n) {
    const int64_t tokens = (image.height / patch.height) >> (own.halves ? n : 0);
    const int64_t size = std::min(window.height, tokens);
    SwinV2Settings settings{.window = {size, size}};
    if (pretrained[n] > 0) settings.pretrained_window = {pretrained[n], pretrained[n]};
    ModelLayers entry = common;
    entry.layer_type = fmt::format("stage{}", n + 1);
    entry.layer_index.clear();
    for (int64_t layer = 0; layer < layers[n]; ++layer) entry.layer_index.push_back(first++);
    entry.bias = settings;
    entry.bias_heads = heads[n];
    entry.notes = notes;
    if (size < window.height) {
      entry.notes.push_back({"WINDOW_OF_STAGE", config.Path("window_size"),
                             fmt::format("this stage has {} tokens per side, and its window is as large", tokens)});
    }
    alike &= size == window.height && pretrained[n] == pretrained[0] && heads[n] == heads[0];
    result.push_back(std::move(entry));
  }
  if (!alike) return result;
  ModelLayers all = result[0];
  all.layer_type.clear();
  for (size_t n = 1; n < stages; ++n) {
    all.layer_index.insert(all.layer_index.end(), result[n].layer_index.begin(), result[n].layer_index.end());
  }
  return std::vector<ModelLayers>{all};
}

absl::StatusOr<BeitSettings> BeitOf(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto by_layer, part.config.Bool("use_relative_position_bias"));
  POSENC_ASSIGN_OR_RETURN(const auto shared, part.config.Bool("use_shared_relative_position_bias"));
  if (!by_layer.value_or(false) && !shared.value_or(false)) {
    return InvalidArgument("UNSUPPORTED", part.config.Path("use_relative_position_bias"), "false",
                           "must be true, or use_shared_relative_position_bias: else the layers have no bias");
  }
  POSENC_ASSIGN_OR_RETURN(const Window patches, PatchesOf(part.config, "image_size", {224, 224}, 16));
  part.Comes("beit", part.config.Path("image_size"), "", " patches");
  if (by_layer.value_or(false)) {
    part.Say("TABLE_BY_LAYER", "use_relative_position_bias", "every layer has its own table");
  }
  return BeitSettings{patches, BeitTable::kTransformers};
}

}  // namespace posenc
