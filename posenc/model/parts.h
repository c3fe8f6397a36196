// Readers for a part of a config.json, mostly one part_NAME.cc each.
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

// Number and width of a part's heads.

// Returns nullopt if neither the file nor the class gives the number of heads.
absl::StatusOr<std::optional<int64_t>> HeadsOf(const Part& part);
// Returns the numbers of heads for ModelLayers::bias_table_heads.
std::vector<double> TableHeadsOf(const Part& part);
// Adds a note if the heads do not divide hidden_size.
absl::StatusOr<int64_t> HeadDimOf(Part& part);

// Rotary settings of a part's layers: from the scaling block, the fields outside it, and the class's defaults.

// Notes fields that are null where the class takes no null: transformers refuses such a file, or fails.
void NoteNulls(Part& part);
void NoteNulls(Part& part, const RopeBlock& block);

// Settings from outside a scaling block.
struct BlockContext {
  double class_theta;            // the class's rope_theta for these layers
  std::string_view theta_field;  // rope_theta's name outside the block; "": none
  bool flat;                     // one block serves all layers
};

// Returns the path that a parameter of the scaling comes from, or would have outside the block.
std::string PathOf(const Part& part, std::string_view name);

// Returns the elements of a head before its rotated part. The part has multi-head latent attention.
absl::StatusOr<int64_t> UnrotatedDimOf(const Part& part);

// UNSUPPORTED for a share of the head by which the class computes tables that it fails to apply.
absl::Status NarrowerTables(const Part& part, const RopeParameters& parameters);

// Adds a note to the part for each setting that is not used as the file states it.
absl::StatusOr<RotarySettings> RotaryOf(Part& part, RopeBlock block, const BlockContext& context);

// Returns the factor of q that a layer of the part has; `block`: its scaling block, null for a layer that does not
// rotate. Adds a note.
absl::StatusOr<std::optional<QueryScale>> QueryScaleOf(Part& part, const RopeBlock* block);

// Rotary settings of a vision part, whose positions have two or three axes (ModelType::axes).

absl::StatusOr<RotarySettings> AxialOf(Part& part);

// Rotary settings of each layer type of a part.

// Sets the model's longest sequence, if the file gives it.
void ReadLongest(const Part& part, ModelLayers* layers);

// Returns one copy of `common` per layer type. `common` holds every layer index, none if the layer count is unknown.
absl::StatusOr<std::vector<ModelLayers>> RotaryLayersOf(const Part& part, const ModelLayers& common);

// ALiBi settings of a part (BLOOM, MPT, Falcon).

// Returns UNSUPPORTED for an MPT file that switches ALiBi off.
absl::StatusOr<bool> HasAlibi(const Part& part);

absl::StatusOr<AlibiSettings> AlibiOf(Part& part);

// Bucket settings of a T5 part.

// A file with two stacks has one set of buckets for both: the part's name selects "encoder" or "decoder".
absl::StatusOr<T5Settings> T5Of(Part& part);

// Window of a Swin or BEiT bias, whose table comes with the request.

// Reads a size that the file gives as one number or as [height, width]; `otherwise` if absent.
absl::StatusOr<Window> SizeOf(const ConfigObject& config, std::string_view field, Window otherwise);
inline absl::StatusOr<Window> SizeOf(const ConfigObject& config, std::string_view field, int64_t otherwise) {
  return SizeOf(config, field, Window{otherwise, otherwise});
}

// Returns the number of patches of `size` in `length`, `step` apart (0: adjacent patches). OUT_OF_RANGE naming `field`
// unless it is 1 .. 65536.
absl::StatusOr<int64_t> CountOf(const ConfigObject& config, std::string_view field, int64_t length, int64_t size,
                                int64_t step = 0);

// Returns the rows and columns of patches (patch_size) of an image whose size `field` gives.
absl::StatusOr<Window> PatchesOf(const ConfigObject& config, std::string_view field, Window otherwise,
                                 int64_t patch_otherwise);

// Returns window_size. A stage with fewer tokens than that has a window of its own size.
absl::StatusOr<SwinSettings> SwinOf(Part& part);

// Returns the window and heads of each stage in copies of `common` with layer types "stage1", "stage2", ...: one entry
// if all stages are equal.
absl::StatusOr<std::vector<ModelLayers>> SwinV2Of(const Part& part, const ModelLayers& common);

// The window is all patches of image_size. UNSUPPORTED if the file switches the bias off.
absl::StatusOr<BeitSettings> BeitOf(Part& part);

// Score term that a part's attention adds to q . k. Its weights come with the request.

// Returns INVALID_ARGUMENT (UNSUPPORTED) naming the field that switches the term off, or the type that has none.
absl::Status CheckTerms(const Part& part);

// Requires CheckTerms(part).ok(), and terms that are not Inkling's.
absl::StatusOr<ModelTerms> TermsOf(Part& part);

inline bool IsInkling(Terms terms) {
  return terms == Terms::kInkling1 || terms == Terms::kInkling2 || terms == Terms::kInkling2Loop;
}

// Returns the term of each layer type of a part for which IsInkling.
absl::StatusOr<std::vector<ModelLayers>> InklingLayersOf(const Part& part, const ModelLayers& common);

// Learned table of a part's positions, which comes with the request.

// Returns INVALID_ARGUMENT (UNSUPPORTED) if the part does not add a table of positions to its input.
absl::StatusOr<ModelTable> LearnedOf(Part& part);

// Sines and cosines of positions that a part adds to its input.

absl::StatusOr<SinusoidalSettings> SinusoidalOf(Part& part);

// Height and width are 0 if the model takes images of any size.
absl::StatusOr<GridSettings> GridOf(Part& part);

}  // namespace posenc
