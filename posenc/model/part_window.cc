#include "posenc/model/part_window.h"

#include <fmt/format.h>

#include "posenc/status.h"

namespace posenc {
namespace {

// A size that the file gives as one number or as [height, width]; the class's own is one for both.
absl::StatusOr<Window> SizeOf(const ConfigObject& config, std::string_view field, int64_t otherwise) {
  const nlohmann::json* value = config.Find(field);
  Window size{otherwise, otherwise};
  if (value != nullptr && value->is_array()) {
    POSENC_ASSIGN_OR_RETURN(const auto numbers, config.Numbers(field));
    if (numbers->size() != 2) {
      return InvalidArgument("MISMATCH", config.Path(field), fmt::format("{} numbers", numbers->size()),
                             "must be one number, or height and width");
    }
    size = {static_cast<int64_t>((*numbers)[0]), static_cast<int64_t>((*numbers)[1])};
  } else if (value != nullptr) {
    POSENC_ASSIGN_OR_RETURN(const auto number, config.Integer({field}));
    size = {*number, *number};
  }
  if (size.height >= 1 && size.width >= 1) return size;
  return InvalidArgument("OUT_OF_RANGE", config.Path(field), value->dump(), "must be at least 1");
}

}  // namespace

absl::StatusOr<SwinSettings> SwinOf(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const Window window, SizeOf(part.config, "window_size", part.type.window));
  part.Say("TABLE_BY_LAYER", "window_size",
           "every layer has a table of its own; in a stage of fewer tokens than the window's, the window is the stage");
  return SwinSettings{window};
}

absl::StatusOr<BeitSettings> BeitOf(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto by_layer, part.config.Bool("use_relative_position_bias"));
  POSENC_ASSIGN_OR_RETURN(const auto shared, part.config.Bool("use_shared_relative_position_bias"));
  if (!by_layer.value_or(false) && !shared.value_or(false)) {
    return InvalidArgument("UNSUPPORTED", part.config.Path("use_relative_position_bias"), "false",
                           "without it, or use_shared_relative_position_bias, this model's layers have no bias");
  }
  POSENC_ASSIGN_OR_RETURN(const Window image, SizeOf(part.config, "image_size", 224));
  POSENC_ASSIGN_OR_RETURN(const Window patch, SizeOf(part.config, "patch_size", 16));
  if (by_layer.value_or(false)) {
    part.Say("TABLE_BY_LAYER", "use_relative_position_bias", "every layer has a table of its own");
  }
  return BeitSettings{{image.height / patch.height, image.width / patch.width}, BeitTable::kTransformers};
}

}  // namespace posenc
