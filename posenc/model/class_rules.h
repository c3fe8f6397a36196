// Rules of classes that rows of several files share, for ClassRules.
#pragma once

#include "posenc/model/layers.h"
#include "posenc/model/model_types.h"
#include "posenc/model/part.h"
#include "posenc/model/rope_block.h"

namespace posenc {

// Hunyuan: "dynamic" with an alpha is "ntk_alpha".
absl::Status ReadHunyuanAlpha(Part& part, RopeBlock& block);

// no_rope_layers has 1 for a layer with a rotary embedding and 0 for one without; by default every
// no_rope_layer_interval-th layer has none. layer_types describes the layers' windows only.
absl::StatusOr<LayerTypeNames> TypesByNoRopeLayers(const Part& part, int64_t layers);
inline const ClassRules& NoRopeLayers() {
  static const ClassRules& rules = *new ClassRules{
      .layer_types = TypesByNoRopeLayers, .all_layer_types = {kRope, kNoRope}, .fields = {"no_rope_layer_interval"}};
  return rules;
}
inline constexpr LayerPattern kIgnoresTypes = {.ignores_list = true};

// Multi-head latent attention whose q and k come half-split if rope_interleave is false or null.
absl::Status ReadInterleave(Part& part);

}  // namespace posenc
