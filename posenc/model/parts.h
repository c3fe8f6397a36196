// Readers of a part of a config.json, a file part_NAME.cc each.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/model/model.h"
#include "posenc/model/part.h"
#include "posenc/model/rope_block.h"

namespace posenc {

// The number and the width of a part's heads.

// None where the file does not say.
absl::StatusOr<std::optional<int64_t>> HeadsOf(const Part& part);
absl::StatusOr<int64_t> HeadDimOf(const Part& part);

// The rotary settings of a part's layers: what stands in the block, beside it, and in the model's class.

// What surrounds a block.
struct BlockContext {
  double class_theta;            // the class's rope_theta for these layers
  std::string_view theta_field;  // its name outside the block; "": none
  bool flat;                     // one block serves all layers
};

// Departures from the letter of the file become notes of the part.
absl::StatusOr<RotarySettings> RotaryOf(Part& part, RopeBlock block, const BlockContext& context);

// The rotary settings of a vision part, whose positions have an axis for rows and one for columns.

absl::StatusOr<RotarySettings> AxialOf(Part& part);

// The rotary embedding of each type of a part's layers.

// Entries like `common`, which holds the index of every layer, as far as the file says how many there are.
absl::StatusOr<std::vector<ModelLayers>> RotaryLayersOf(const Part& part, const ModelLayers& common);

// The ALiBi settings of a part (BLOOM, MPT, Falcon).

// Whether the part's bias is ALiBi.
absl::StatusOr<bool> HasAlibi(const Part& part);

absl::StatusOr<AlibiSettings> AlibiOf(Part& part);

// The buckets of a T5's part.

// The part's name says which: both stacks share one file, which has one set of buckets for them.
absl::StatusOr<T5Settings> T5Of(Part& part);

// The window of a Swin's or BEiT's bias, whose table comes with the request.

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

// The term of the scores that a part's attention has beside q . k, whose weights come with the request.

// INVALID_ARGUMENT, UNSUPPORTED, naming the field of the file that switches the term off, or the type that has none.
absl::Status CheckTerms(const Part& part);

// Of a part that has one.
absl::StatusOr<ModelTerms> TermsOf(Part& part);

// The learned table of a part's positions, which comes with the request.

// INVALID_ARGUMENT, UNSUPPORTED, where the file says that positions are none of the input.
absl::StatusOr<ModelTable> LearnedOf(Part& part);

// The sines and cosines of positions that a part adds to its input.

absl::StatusOr<SinusoidalSettings> SinusoidalOf(Part& part);

// Height and width are 0 where the model takes images of any size.
absl::StatusOr<GridSettings> GridOf(Part& part);

}  // namespace posenc
