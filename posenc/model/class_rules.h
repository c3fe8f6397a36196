// Rules of classes that rows of several files share, for ClassRules.
#pragma once

#include <string_view>

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

// Older names of hidden_size and, unless "", of the number of heads, which prevail over the newer ones.
template <const auto& kNames>
absl::Status ReadOlderWidths(Part& part) {
  if (part.config.Find(kNames[0]) != nullptr) {
    part.type.hidden_size_field = kNames[0];
    if (part.type.learned) part.type.learned->width_field = kNames[0];
  }
  if (part.config.Find(kNames[1]) != nullptr) part.type.heads_field = kNames[1];
  return absl::OkStatus();
}
inline constexpr std::string_view kOldEmbed[] = {"n_embed", ""};

// DeepSeek V4: layers with a compressor have a block of their own.
ClassRules DeepseekV4Rules();

// Multi-head latent attention whose q and k come half-split if rope_interleave is false or null.
absl::Status ReadInterleave(Part& part);

}  // namespace posenc
