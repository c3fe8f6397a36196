// Position ids of diffusion models' tokens, by diffusers' classes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/limits.h"
#include "posenc/model/config_json.h"
#include "posenc/positions/description.h"
#include "posenc/positions/rules.h"

namespace posenc {

// Fields are those of LatentDescription in proto/posenc/v1/positions.proto.
struct LatentDescription {
  std::vector<PatchGrid> grids;
  int64_t text_length = 0;
  std::vector<double> rope_interpolation_scale;
};

struct LatentRule {
  // Appends the ids of all tokens, in the order in which the class concatenates them.
  using Count = absl::Status (*)(const ConfigObject& model, const LatentDescription& latents, CountedPositions* result);

  PositionRule rule;  // model_type is the class's name
  Count count;
  size_t max_grids;
  bool has_text;
  bool reads_scale;
  bool one_frame;  // the class does not read the grids' frames
  std::vector<std::string_view> axes;
};

// Returns the row of a class, or null.
const LatentRule* FindLatentRule(std::string_view class_name);

// Returns the rule that the file's _class_name selects. UNSUPPORTED if there is none.
absl::StatusOr<const LatentRule*> SelectLatentRule(const ConfigObject& file);

// Errors name the field of the description, or of the file.
absl::StatusOr<CountedPositions> CountLatents(const LatentRule& rule, const ConfigObject& model,
                                              const LatentDescription& latents, const Limits& limits);

}  // namespace posenc
