// The window of a Swin's or BEiT's bias, whose table comes with the request.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/model/model.h"
#include "posenc/model/part.h"

namespace posenc {

// A size that the file gives as one number or as [height, width].
absl::StatusOr<Window> SizeOf(const ConfigObject& config, std::string_view field, Window otherwise);
inline absl::StatusOr<Window> SizeOf(const ConfigObject& config, std::string_view field, int64_t otherwise) {
  return SizeOf(config, field, Window{otherwise, otherwise});
}

// How many pieces of a size, a step apart (0: side by side), a length has that the field says. OUT_OF_RANGE: none, or
// more than 65536.
absl::StatusOr<int64_t> CountOf(const ConfigObject& config, std::string_view field, int64_t length, int64_t size,
                                int64_t step = 0);

// The rows and columns of patches, of patch_size, of an image of the field's size.
absl::StatusOr<Window> PatchesOf(const ConfigObject& config, std::string_view field, Window otherwise,
                                 int64_t patch_otherwise);

// window_size, in every stage whose tokens are at least as many.
absl::StatusOr<SwinSettings> SwinOf(Part& part);

// The windows of each stage, and its heads, as entries like `common`: layer types "stage1", "stage2", ..., or one entry
// where all stages are alike.
absl::StatusOr<std::vector<ModelLayers>> SwinV2Of(const Part& part, const ModelLayers& common);

// All patches of an image of image_size, where the file says that layers have the bias.
absl::StatusOr<BeitSettings> BeitOf(Part& part);

}  // namespace posenc
