#include "posenc/model/diffusers.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/status.h"

namespace posenc {
namespace {

// Reads a video's grid. It has no base_size: coordinates are only divided by the scales. Text tokens come first.
absl::Status ReadVideo(const ConfigObject& config, GridSettings& settings) {
  POSENC_ASSIGN_OR_RETURN(const auto spatial, config.Number({"spatial_interpolation_scale"}));
  POSENC_ASSIGN_OR_RETURN(const auto temporal, config.Number({"temporal_interpolation_scale"}));
  POSENC_ASSIGN_OR_RETURN(const auto text, config.Integer({"max_text_seq_length"}));
  settings.interpolation_scale = spatial.value_or(1.875);
  settings.temporal_interpolation_scale = temporal.value_or(1);
  settings.extra_tokens = text.value_or(226);
  settings.frames = 0;  // the request gives the number
  return absl::OkStatus();
}

absl::Status ReadScale(const ConfigObject& config, const DiffusersGrid& grid, int64_t sample_size,
                       GridSettings& settings) {
  constexpr std::string_view kField = "interpolation_scale";
  settings.interpolation_scale = 1;
  if (grid.scale == GridScale::kOne) return absl::OkStatus();
  settings.interpolation_scale = static_cast<double>(std::max<int64_t>(sample_size / 64, 1));
  if (grid.scale == GridScale::kOfSampleSize) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(const auto given, config.Number({kField}));
  if (!given && grid.scale == GridScale::kGiven) {
    const bool is_null = IsNull(config, kField);
    return InvalidArgument(is_null ? "UNSUPPORTED" : "MISSING", config.Path(kField), is_null ? "null" : "",
                           "must be a number: without it the class has no sinusoidal embedding");
  }
  if (given) settings.interpolation_scale = given;
  return absl::OkStatus();
}

absl::Status ReadBase(const ConfigObject& config, const DiffusersGrid& grid, GridSettings& settings) {
  settings.base_size = grid.base_size;
  int64_t sample_size = 0;
  if (grid.base_size == 0) {
    POSENC_ASSIGN_OR_RETURN(sample_size, PositiveField(config, "sample_size", grid.sample_size));
    POSENC_ASSIGN_OR_RETURN(const int64_t patch_size, PositiveField(config, "patch_size", grid.patch_size));
    if (patch_size > sample_size) {
      return InvalidArgument("OUT_OF_RANGE", config.Path("patch_size"), fmt::format("{}", patch_size),
                             fmt::format("must be at most sample_size, {}", sample_size));
    }
    settings.base_size = sample_size / patch_size;
  }
  constexpr std::string_view kMost = "pos_embed_max_size";
  if (grid.pos_embed_max_size != 0 && !IsNull(config, kMost)) {
    POSENC_ASSIGN_OR_RETURN(settings.pos_embed_max_size, PositiveField(config, kMost, grid.pos_embed_max_size));
  }
  return ReadScale(config, grid, sample_size, settings);
}

}  // namespace

absl::StatusOr<GridSettings> DiffusersGridOf(const ConfigObject& config, const DiffusersGrid& grid) {
  if (!grid.unless.empty()) {
    POSENC_ASSIGN_OR_RETURN(const auto flag, config.Bool(grid.unless));
    if (flag.value_or(false)) {
      return InvalidArgument("UNSUPPORTED", config.Path(grid.unless), "true",
                             "must be false: else the class has no sinusoidal embedding");
    }
  }
  GridSettings settings;
  settings.convention = grid.convention;
  settings.temperature = 10000;
  POSENC_ASSIGN_OR_RETURN(settings.dim, ModelWidth(config, grid.width));
  if (grid.scale == GridScale::kOfVideo) {
    POSENC_RETURN_IF_ERROR(ReadVideo(config, settings));
  } else if (grid.convention == GridConvention::kDiffusers) {
    POSENC_RETURN_IF_ERROR(ReadBase(config, grid, settings));
  }
  return settings;
}

absl::StatusOr<SinusoidalSettings> DiffusersSinesOf(const ConfigObject& config, const DiffusersSines& sines) {
  if (!sines.kind_field.empty()) {
    POSENC_ASSIGN_OR_RETURN(const auto kind, config.String(sines.kind_field));
    if (kind.value_or("") != "sinusoidal") {
      return InvalidArgument("UNSUPPORTED", config.Path(sines.kind_field), kind.value_or(""),
                             "must be \"sinusoidal\": else the class has no sinusoidal embedding");
    }
  }
  SinusoidalSettings settings;
  settings.convention = sines.convention;
  POSENC_ASSIGN_OR_RETURN(settings.dim, ModelWidth(config, sines.width));
  return settings;
}

absl::StatusOr<ModelTable> DiffusersTableOf(const ConfigObject& config, const DiffusersTable& table) {
  ModelTable result;
  POSENC_ASSIGN_OR_RETURN(result.rows, PositiveField(config, table.rows_field, table.rows));
  if (!table.more_rows_field.empty()) {
    POSENC_ASSIGN_OR_RETURN(const auto more, config.Integer({table.more_rows_field}));
    result.rows += more.value_or(table.more_rows);
  }
  POSENC_ASSIGN_OR_RETURN(result.width, ModelWidth(config, table.width));
  return result;
}

}  // namespace posenc
