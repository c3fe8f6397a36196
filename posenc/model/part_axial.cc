#include "posenc/model/parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/status.h"
#include "posenc/model/rope_block.h"

namespace posenc {
namespace {

struct IsSet {
  template <class T>
  bool operator()(const std::optional<T>& field) const {
    return field.has_value();
  }
  template <class T>
  bool operator()(const std::vector<T>& field) const {
    return !field.empty();
  }
  template <class T>
  bool operator()(const T&) const {
    return false;
  }
};

// Notes every field of the block as unused except rope_theta, the only one that these classes read.
void NoteUnread(const RopeParameters& block, const std::string& path, Part& part) {
  VisitFields(block, [&part, &path](std::string_view name, const auto& field) {
    if (name == "rope_theta" || !IsSet()(field)) return;
    part.Say("NOT_USED", fmt::format("{}.{}", path, name),
             fmt::format("model_type \"{}\" does not read it", part.type.name));
  });
}

}  // namespace

absl::StatusOr<RotarySettings> AxialOf(Part& part) {
  POSENC_ASSIGN_OR_RETURN(const RopeBlocks blocks, ReadRopeBlocks(part.config, part.type));
  RopeParameters block;
  NoteNulls(part);
  if (!blocks.empty() && part.type.block_in == BlockIn::kNowhere) {
    const std::string path = part.config.PathOf({"rope_parameters", "rope_scaling"});
    part.Say("NOT_USED", path, fmt::format("model_type \"{}\" does not read it", part.type.name));
  } else if (!blocks.empty()) {
    if (blocks[0].second) NoteNulls(part, *blocks[0].second);
    if (!blocks[0].first.empty() ||
        (blocks[0].second->parameters.rope_type != "axial" && blocks[0].second->parameters.rope_type != "default")) {
      const bool nested = !blocks[0].first.empty();
      const std::string path = part.config.PathOf({"rope_parameters", "rope_scaling"});
      return InvalidArgument(
          "UNSUPPORTED", nested ? path : fmt::format("{}.{}", path, blocks[0].second->type_key),
          nested ? "blocks of layer types" : blocks[0].second->parameters.rope_type,
          fmt::format("must be one block, of rope_type \"axial\" or \"default\", for model_type \"{}\"",
                      part.type.name));
    }
    block = blocks[0].second->parameters;
    const auto& accepted = part.type.rope_types;
    if (!accepted.empty() && std::find(accepted.begin(), accepted.end(), block.rope_type) == accepted.end()) {
      return InvalidArgument(
          "UNSUPPORTED", fmt::format("{}.{}", blocks[0].second->path, blocks[0].second->type_key), block.rope_type,
          fmt::format("must be \"{}\": model_type \"{}\" refuses other names", accepted[0], part.type.name));
    }
    NoteUnread(block, blocks[0].second->path, part);
    if (block.rope_theta) part.Comes("axial.axes[0].rope_theta", blocks[0].second->path + ".rope_theta");
  }
  POSENC_ASSIGN_OR_RETURN(const auto outer_theta, part.config.Number({part.type.theta_field}));
  POSENC_ASSIGN_OR_RETURN(const int64_t head_dim, HeadDimOf(part));
  part.Comes("axial.axes", part.config.PathOf({part.type.head_dim_field, part.type.hidden_size_field}), "",
             " elements per axis");
  part.whole_head = head_dim;
  RotarySettings settings;
  settings.head_dim = head_dim;
  if (part.type.rules.settings != nullptr) POSENC_RETURN_IF_ERROR(part.type.rules.settings(part, settings, block));
  settings.head_dim.reset();
  if (head_dim % part.type.axes.width_multiple != 0) {
    return InvalidArgument("OUT_OF_RANGE", part.config.PathOf({part.type.head_dim_field, part.type.hidden_size_field}),
                           fmt::format("heads of {}", head_dim),
                           fmt::format("must give heads of a multiple of {}: the tables of model_type \"{}\" fit no "
                                       "others",
                                       part.type.axes.width_multiple, part.type.name));
  }
  double theta = block.rope_theta.value_or(outer_theta.value_or(part.type.theta));
  if (!part.type.theta_field.empty() &&
      part.type.theta_field != "rope_theta") {  // a newer name, and an older one, which prevails
    POSENC_ASSIGN_OR_RETURN(const auto usual, part.config.Number({"rope_theta"}));
    if (usual && !block.rope_theta) part.Comes("axial.axes[0].rope_theta", part.config.Path("rope_theta"));
    theta = outer_theta.value_or(block.rope_theta.value_or(usual.value_or(part.type.theta)));
  }
  if (outer_theta && theta == *outer_theta) {
    part.Comes("axial.axes[0].rope_theta", part.config.Path(part.type.theta_field));
  }
  // Two axes: half of the head each. Three: the largest even third each; the rest of the head does not rotate.
  const HeadAxes& axes = part.type.axes;
  const int64_t dim = axes.count == 2 ? head_dim / 2 : head_dim / axes.count / 2 * 2;
  AxialRope axial{{}, axes.alternating};
  for (int64_t axis = 0; axis < axes.count; ++axis) {
    axial.axes.push_back({dim, theta, axis == 1 ? axes.second_start : 0});
  }
  settings.frequencies = std::move(axial);
  settings.input_pairing = part.type.pairing;
  settings.output_pairing = part.type.output_pairing;
  if (axes.own_halves) settings.half_split_parts = axes.count;
  if (!part.type.note.empty()) part.Say("POSITIONS", "", std::string(part.type.note));
  if (part.type.learned) {
    part.Say("NOT_PART_OF_ROTATION", "model_type",
             fmt::format("model_type \"{}\" also adds a learned table of positions to its input, which the rotation "
                         "does not: GenerateEmbedding.learned",
                         part.type.name));
    Part input = part;
    input.notes.clear();
    const bool readable = LearnedOf(input).ok();  // a wrong size of the table is an error only where the table is used
    for (Note& note : input.notes) {
      if (readable && note.code == "RESIZED") AddNote(std::move(note), part.notes);
    }
  }
  return settings;
}

}  // namespace posenc
