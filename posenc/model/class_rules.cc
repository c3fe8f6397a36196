#include "posenc/model/class_rules.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "posenc/base/status.h"

namespace posenc {

absl::Status ReadHunyuanAlpha(Part& part, RopeBlock& block) {
  RopeParameters& p = block.parameters;
  if (p.rope_type != "dynamic" || p.alpha.value_or(0) == 0) return absl::OkStatus();
  part.Say("RENAMED", block.TypePath(),
           "Hunyuan reads \"dynamic\" with an alpha as \"ntk_alpha\": only alpha and rope_theta are used");
  RopeParameters written = std::move(p);
  p = {.rope_type = "ntk_alpha", .rope_theta = written.rope_theta};
  p.alpha = written.alpha;
  p.mrope_section = std::move(written.mrope_section);
  return absl::OkStatus();
}

absl::StatusOr<LayerTypeNames> TypesByNoRopeLayers(const Part& part, int64_t layers) {
  POSENC_ASSIGN_OR_RETURN(auto rope, part.config.Numbers("no_rope_layers"));
  if (rope && rope->empty()) rope.reset();
  if (rope && static_cast<int64_t>(rope->size()) != layers) {
    return InvalidArgument("MISMATCH", part.config.Path("no_rope_layers"), fmt::format("{} entries", rope->size()),
                           fmt::format("must have one entry per layer: {}", layers));
  }
  POSENC_ASSIGN_OR_RETURN(const auto interval, EveryNth(part, {"no_rope_layer_interval"}));
  const int64_t every = interval.value_or(4);
  LayerTypeNames types;
  for (int64_t n = 0; n < layers; ++n) {
    types.emplace_back((rope ? (*rope)[n] != 0 : (n + 1) % every != 0) ? kRope : kNoRope);
  }
  return types;
}

absl::Status ReadInterleave(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const auto interleave, part.config.Bool("rope_interleave"));
  const bool is_null = part.config.IsNull("rope_interleave");
  if (is_null) part.Say("DEFAULTED", "rope_interleave", "null: read as false");
  if (is_null || !interleave.value_or(true)) part.type.pairing = Pairing::kHalfSplit;
  return absl::OkStatus();
}

}  // namespace posenc
