#include "posenc/model/diffusers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "posenc/base/checks.h"
#include "posenc/base/status.h"
#include "posenc/exact/real.h"

namespace posenc {
namespace {

absl::StatusOr<int64_t> TurningWidth(const ConfigObject& config, const DiffusersRotary& rotary) {
  POSENC_ASSIGN_OR_RETURN(const int64_t head_dim, HeadWidth(config, rotary.width));
  return head_dim * rotary.width_times / rotary.width_over;
}

absl::StatusOr<std::vector<int64_t>> WholeNumbers(const ConfigObject& config, std::string_view field) {
  POSENC_ASSIGN_OR_RETURN(const auto listed, config.Numbers(field));
  std::vector<int64_t> numbers;
  for (double number : listed.value_or(std::vector<double>())) {
    if (!(number >= 0 && number <= 1e6) || number != std::floor(number)) {
      return InvalidArgument("OUT_OF_RANGE", config.Path(field), fmt::format("{}", number),
                             "must be whole numbers, 0 .. 10^6");
    }
    numbers.push_back(static_cast<int64_t>(number));
  }
  return numbers;
}

absl::StatusOr<std::vector<int64_t>> ListedWidths(const ConfigObject& config, const DiffusersRotary& rotary) {
  POSENC_ASSIGN_OR_RETURN(std::vector<int64_t> widths, WholeNumbers(config, rotary.widths_field));
  if (widths.empty()) widths = rotary.widths;
  if (widths.empty()) return Missing(config, rotary.widths_field);
  if (widths.size() > kMaxAxes) {
    return InvalidArgument("OUT_OF_RANGE", config.Path(rotary.widths_field), fmt::format("{} entries", widths.size()),
                           fmt::format("must be at most {}: one per axis", kMaxAxes));
  }
  return widths;
}

// Returns each axis's width, in elements, of `dim` elements that rotate.
std::vector<int64_t> Divided(AxisSplit split, int64_t dim) {
  switch (split) {
    case AxisSplit::kThirds:
    case AxisSplit::kCosmos: return {dim - dim / 6 * 4, dim / 6 * 2, dim / 6 * 2};
    case AxisSplit::kEvenThirds: return {dim / 3, dim / 3, dim / 3};
    case AxisSplit::kCogVideoX: return {dim / 4, dim / 8 * 3, dim / 8 * 3};
    default: return {dim / 2, dim / 2};
  }
}

absl::Status ScaleThetas(const ConfigObject& config, std::vector<AxialAxis>& axes) {
  POSENC_ASSIGN_OR_RETURN(const auto listed, config.Numbers("rope_scale"));
  const std::vector<double> scale = listed.value_or(std::vector<double>{2, 1, 1});
  if (scale.size() != axes.size()) {
    return InvalidArgument("MISMATCH", config.Path("rope_scale"), fmt::format("{} values", scale.size()),
                           "must be 3 values, one per axis");
  }
  for (size_t n = 0; n < axes.size(); ++n) {
    if (!(scale[n] > 0)) {
      return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", config.Path("rope_scale"), n),
                             fmt::format("{}", scale[n]), "must be above 0");
    }
    if (axes[n].dim <= 2) {
      return InvalidArgument("OUT_OF_RANGE", config.Path("attention_head_dim"),
                             fmt::format("{} elements per axis", axes[n].dim),
                             "must give each axis more than 2 elements");
    }
    const auto dim = static_cast<double>(axes[n].dim);
    axes[n].rope_theta = 10000 * RoundedPow(scale[n], dim / (dim - 2));
  }
  return absl::OkStatus();
}

// Returns the pairs of t, h and w. The file gives h and w, which take every third pair; t has the remaining pairs.
absl::StatusOr<std::vector<int64_t>> SectionsOf(const ConfigObject& config, const DiffusersRotary& rotary,
                                                int64_t pairs, std::vector<Note>& notes) {
  POSENC_ASSIGN_OR_RETURN(std::vector<int64_t> sections, ListedWidths(config, rotary));
  std::string path = config.Path(rotary.widths_field);
  if (rotary.block_has_sections && config.Find(rotary.widths_field) == nullptr) {
    POSENC_ASSIGN_OR_RETURN(const auto block, config.Object("rope_scaling"));
    if (block) {
      POSENC_ASSIGN_OR_RETURN(const auto in_block, WholeNumbers(*block, "mrope_section"));
      if (!in_block.empty()) {
        sections = in_block;
        path = block->Path("mrope_section");
      }
    }
  }
  const int64_t most_h = (pairs + 1) / 3, most_w = pairs / 3;
  const bool fits = sections.size() == 3 && sections[1] <= most_h && sections[2] <= most_w;
  if (!fits && sections.size() == 3 && rotary.cuts_sections) {
    sections = {0, std::min(sections[1], most_h), std::min(sections[2], most_w)};
    notes.push_back({"NOT_USED", path,
                     fmt::format("the class gives h {} and w {} of a head's {} pairs, and ignores the rest",
                                 sections[1], sections[2], pairs)});
  } else if (!fits) {
    return InvalidArgument(
        "MISMATCH", path, fmt::format("{}", fmt::join(sections, ", ")),
        fmt::format("must be 3 values, the last two at most {} and {} of the {} pairs", most_h, most_w, pairs));
  }
  sections[0] = pairs - sections[1] - sections[2];
  return sections;
}

// Reads LongRoPE for OmniGen, whose class uses short_factor and long_factor of the block and nothing else.
absl::StatusOr<RopeParameters> LongropeOf(const ConfigObject& config, ModelLayers& layers) {
  RopeParameters parameters{.rope_type = "longrope"};
  POSENC_ASSIGN_OR_RETURN(const auto block, config.Object("rope_scaling"));
  if (!block) return Missing(config, "rope_scaling");
  layers.fields.push_back({"rope_parameters", config.Path("rope_scaling")});
  layers.fields.push_back(
      {"rope_parameters.original_max_position_embeddings", config.Path("original_max_position_embeddings")});
  for (const auto& [name, factors] :
       {std::pair{"short_factor", &parameters.short_factor}, {"long_factor", &parameters.long_factor}}) {
    POSENC_ASSIGN_OR_RETURN(const auto listed, block->Numbers(name));
    if (!listed) return Missing(*block, name);
    *factors = *listed;
  }
  POSENC_ASSIGN_OR_RETURN(const auto original, config.Number({"original_max_position_embeddings"}));
  POSENC_ASSIGN_OR_RETURN(const auto longest, config.Number({"max_position_embeddings"}));
  parameters.original_max_position_embeddings = original.value_or(4096);
  layers.rotary->max_position_embeddings = longest.value_or(131072);
  return parameters;
}

absl::StatusOr<RopeParameters> ParametersOf(const ConfigObject& config, const DiffusersRotary& rotary, double theta,
                                            ModelLayers& layers) {
  RopeParameters parameters{.rope_type = "default"};
  if (rotary.split == AxisSplit::kLongrope) {
    POSENC_ASSIGN_OR_RETURN(parameters, LongropeOf(config, layers));
  } else if (rotary.split == AxisSplit::kSections) {
    POSENC_ASSIGN_OR_RETURN(parameters.mrope_section,
                            SectionsOf(config, rotary, *layers.rotary->rotary_dim / 2, layers.notes));
    parameters.mrope_order = MropeOrder::kInterleaved;
  }
  parameters.rope_theta = theta;
  return parameters;
}

// Returns frequencies over all heads together: first pairs that do not rotate, then the three axes alternate.
absl::StatusOr<GivenFrequencies> LtxFrequencies(const ConfigObject& config, int64_t dim, double theta,
                                                const Limits& limits) {
  constexpr int64_t kAxes = 3;
  if (dim < 4 * kAxes || dim > limits.max_rotary_dim) {  // before allocating that many
    return InvalidArgument(
        "OUT_OF_RANGE", config.Path("attention_head_dim"), fmt::format("{} in all heads", dim),
        fmt::format("must be {} .. {} elements in all heads together", 4 * kAxes, limits.max_rotary_dim));
  }
  const int64_t count = dim / (2 * kAxes), rest = dim / 2 - count * kAxes;
  GivenFrequencies given{std::vector<double>(rest), {}, std::vector<int64_t>(rest)};
  for (int64_t j = 0; j < count; ++j) {
    const double share = static_cast<double>(j) / static_cast<double>(count - 1);
    given.inv_freq.insert(given.inv_freq.end(), kAxes, RoundedPow(theta, share) * (std::numbers::pi / 2));
    for (int64_t axis = 0; axis < kAxes; ++axis) given.axis.push_back(axis);
  }
  return given;
}

// Sets half-split pairing within each head. The heads are parts of one wide head.
absl::Status PairLtx(const ConfigObject& config, const DiffusersRotary& rotary, RotarySettings& settings) {
  POSENC_ASSIGN_OR_RETURN(const auto kind, config.String(rotary.pairing_field));
  if (kind.value_or("interleaved") == "interleaved") return absl::OkStatus();
  if (*kind != "split") {
    return InvalidArgument("UNKNOWN_VALUE", config.Path(rotary.pairing_field), *kind,
                           "must be \"interleaved\" or \"split\"");
  }
  POSENC_ASSIGN_OR_RETURN(settings.half_split_parts,
                          PositiveField(config, rotary.width.heads_field, rotary.width.default_heads));
  settings.input_pairing = settings.output_pairing = Pairing::kHalfSplit;
  return absl::OkStatus();
}

absl::StatusOr<AxialRope> AxesOf(const ConfigObject& config, const DiffusersRotary& rotary, double theta,
                                 std::vector<FileField>& fields) {
  std::vector<int64_t> widths;
  const bool thirds = rotary.null_is_thirds && IsNull(config, rotary.widths_field);
  if (rotary.split == AxisSplit::kListed && !thirds) {
    POSENC_ASSIGN_OR_RETURN(widths, ListedWidths(config, rotary));
    for (size_t n = 0; n < widths.size(); ++n) {
      fields.push_back(
          {fmt::format("axial.axes[{}].dim", n), fmt::format("{}[{}]", config.Path(rotary.widths_field), n)});
    }
  } else {
    POSENC_ASSIGN_OR_RETURN(const int64_t width, TurningWidth(config, rotary));
    widths = Divided(thirds ? AxisSplit::kEvenThirds : rotary.split, width);
    fields.push_back({"axial.axes", config.Path(rotary.width.field), "", " elements per axis"});
  }
  AxialRope axial{{}, rotary.split == AxisSplit::kAlternating};
  for (int64_t dim : widths) axial.axes.push_back({dim, theta, 0});
  if (rotary.split == AxisSplit::kCosmos) POSENC_RETURN_IF_ERROR(ScaleThetas(config, axial.axes));
  return axial;
}

absl::StatusOr<double> ThetaOf(const ConfigObject& config, const DiffusersRotary& rotary) {
  if (rotary.theta_field.empty()) return rotary.theta;
  POSENC_ASSIGN_OR_RETURN(const auto given, config.Number({rotary.theta_field}));
  const double theta = given.value_or(rotary.theta);
  if (theta > 0) return theta;
  return InvalidArgument("OUT_OF_RANGE", config.Path(rotary.theta_field), fmt::format("{}", theta), "must be above 0");
}

}  // namespace

absl::Status ReadDiffusersRotary(const ConfigObject& config, const DiffusersRotary& rotary, const Limits& limits,
                                 ModelLayers& layers) {
  POSENC_ASSIGN_OR_RETURN(const double theta, ThetaOf(config, rotary));
  RotarySettings& settings = layers.rotary.emplace();
  settings.input_pairing = settings.output_pairing = rotary.pairing;
  settings.half_split_parts = rotary.half_split_parts;
  settings.table_pairing = rotary.table_pairing;
  switch (rotary.split) {
    case AxisSplit::kOne:
    case AxisSplit::kSections:
    case AxisSplit::kLongrope: {
      POSENC_ASSIGN_OR_RETURN(settings.rotary_dim, TurningWidth(config, rotary));
      const bool is_field = rotary.width.heads_field.empty() && rotary.width_times == rotary.width_over;
      layers.fields.push_back({"rotary_dim", config.Path(rotary.width.field), "", is_field ? "" : " rotated elements"});
      POSENC_ASSIGN_OR_RETURN(settings.frequencies, ParametersOf(config, rotary, theta, layers));
      return absl::OkStatus();
    }
    case AxisSplit::kLtx: {
      POSENC_ASSIGN_OR_RETURN(const int64_t width, ModelWidth(config, rotary.width));
      POSENC_ASSIGN_OR_RETURN(settings.frequencies, LtxFrequencies(config, width, theta, limits));
      return PairLtx(config, rotary, settings);
    }
    default: {
      POSENC_ASSIGN_OR_RETURN(settings.frequencies, AxesOf(config, rotary, theta, layers.fields));
      return absl::OkStatus();
    }
  }
}

}  // namespace posenc
