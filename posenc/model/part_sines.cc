#include "posenc/model/parts.h"

#include <fmt/format.h>

#include <cmath>

#include "posenc/base/status.h"
#include "posenc/exact/real.h"

namespace posenc {
namespace {

// Reads the temperature. UNSUPPORTED if its fields (one per axis) differ.
absl::StatusOr<double> TemperatureOf(const Part& part, const SineGrid& grid) {
  std::optional<double> temperature;
  for (std::string_view field : grid.temperature_fields) {
    POSENC_ASSIGN_OR_RETURN(const auto given, part.config.Number({field}));
    const double value = given.value_or(grid.temperature);
    if (temperature && *temperature != value) {
      return InvalidArgument("UNSUPPORTED", part.config.Path(field), fmt::format("{}", value),
                             fmt::format("must be {}, as for the other axis", *temperature));
    }
    temperature = value;
  }
  return temperature.value_or(grid.temperature);
}

absl::Status CheckSines(const Part& part) {
  const std::string_view flag = part.type.sines->only_if;
  POSENC_ASSIGN_OR_RETURN(const auto adds, part.config.Bool(flag));
  if (!flag.empty() && !adds.value_or(false)) {
    return InvalidArgument(
        "UNSUPPORTED", part.config.Path(flag), "false",
        fmt::format("must be true: else model_type \"{}\" has no sinusoidal embedding", part.type.name));
  }
  const std::string_view field = part.type.sines->one_field;
  POSENC_ASSIGN_OR_RETURN(const auto one, part.config.Number({field}));
  if (one.value_or(1) != 1) {
    return InvalidArgument("UNSUPPORTED", part.config.Path(field), fmt::format("{}", *one), "must be 1");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SinusoidalSettings> SinusoidalOf(Part& part) {
  if (!part.type.sines) return part.HasOther();
  const SineTable& table = *part.type.sines;
  POSENC_RETURN_IF_ERROR(CheckSines(part));
  SinusoidalSettings settings;
  settings.convention = table.convention;
  POSENC_ASSIGN_OR_RETURN(const auto width, part.config.Integer({table.width_field}));
  POSENC_ASSIGN_OR_RETURN(const auto times, part.config.Integer({table.times_field}));
  if (__builtin_mul_overflow(width.value_or(table.width), times.value_or(table.times), &settings.dim)) {
    return InvalidArgument("OUT_OF_RANGE", part.config.Path(table.times_field), fmt::format("{}", *times),
                           "must keep the width below 2^63");
  }
  part.Comes("dim", part.config.Path(table.width_field));
  if (!table.max_timescale_field.empty()) part.Comes("max_timescale", part.config.Path(table.max_timescale_field));
  part.Comes("padding_idx", part.config.Path("pad_token_id"));
  settings.cosines_first = table.cosines_first;
  POSENC_ASSIGN_OR_RETURN(settings.max_timescale, part.config.Number({table.max_timescale_field}));
  if (table.by_width && settings.dim % 2 != 0) {
    return InvalidArgument("OUT_OF_RANGE", part.config.Path(table.width_field), fmt::format("{}", settings.dim),
                           "must be even");
  }
  if (table.by_width && settings.dim > 0) {
    const auto dim = static_cast<double>(settings.dim);
    settings.max_timescale = RoundedPow<double>(10000.0, (dim - 2) / dim);
    settings.scale = 1 / std::sqrt(dim);
  }
  if (table.convention == SinusoidalConvention::kFairseq) {
    POSENC_ASSIGN_OR_RETURN(const auto padding, part.config.Integer({"pad_token_id"}));
    settings.padding_idx = padding.value_or(table.padding);
    part.Say("POSITIONS", "pad_token_id",
             "the model numbers only tokens that are not padding; padding has no position: give token_valid");
  }
  part.SayNote();
  return settings;
}

absl::StatusOr<GridSettings> GridOf(Part& part) {
  if (!part.type.grid) return part.HasOther();
  const SineGrid& grid = *part.type.grid;
  if (!grid.only_if.empty()) {
    POSENC_ASSIGN_OR_RETURN(const auto kind, part.config.String("position_embedding_type"));
    if (kind.value_or(std::string(grid.only_if)) != grid.only_if) {
      return InvalidArgument("UNSUPPORTED", part.config.Path("position_embedding_type"), Quote(*kind),
                             fmt::format("must be {}: else model_type \"{}\" has no sinusoidal grid embedding",
                                         grid.only_if, part.type.name));
    }
  }
  GridSettings settings;
  settings.convention = grid.convention;
  settings.rows_first = grid.rows_first;
  POSENC_ASSIGN_OR_RETURN(const auto width, part.config.Integer({grid.width_field}));
  settings.dim = width.value_or(grid.width);
  POSENC_ASSIGN_OR_RETURN(settings.temperature, TemperatureOf(part, grid));
  if (grid.offset != 0) settings.offset = grid.offset;
  if (!grid.scale_field.empty()) {
    POSENC_ASSIGN_OR_RETURN(settings.scale, part.config.Number({grid.scale_field}));
  }
  settings.extra_tokens = grid.tokens_before;
  if (grid.patch_size != 0) {
    POSENC_ASSIGN_OR_RETURN(const Window patches,
                            PatchesOf(part.config, "image_size", {grid.image_size, grid.image_size}, grid.patch_size));
    settings.height = patches.height;
    settings.width = patches.width;
    if (settings.height != settings.width) {
      return InvalidArgument("UNSUPPORTED", part.config.Path("image_size"),
                             fmt::format("{} x {} patches", settings.height, settings.width),
                             fmt::format("must be square for model_type \"{}\"", part.type.name));
    }
  } else {
    part.Say("POSITIONS", "model_type",
             "images may be of any size: give height and width, in cells of the feature map");
  }
  part.SayNote();
  return settings;
}

}  // namespace posenc
