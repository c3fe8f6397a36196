#include "posenc/model/parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "posenc/base/status.h"

namespace posenc {
namespace {

absl::Status NotOfTheInput(const Part& part, std::string_view field, std::string_view value, std::string_view wanted) {
  return InvalidArgument(
      "UNSUPPORTED", part.config.Path(field), value,
      fmt::format("must be {}: else model_type \"{}\" adds no table of positions", wanted, part.type.name));
}

absl::Status CheckAddsTable(const Part& part) {
  if (part.type.terms == Terms::kBert) {
    POSENC_ASSIGN_OR_RETURN(const auto kind, part.config.String("position_embedding_type"));
    if (kind.value_or("absolute") != "absolute") {
      return NotOfTheInput(part, "position_embedding_type", *kind, "absolute");
    }
  }
  if (part.type.terms == Terms::kDeberta || part.type.terms == Terms::kDebertaV2) {
    POSENC_ASSIGN_OR_RETURN(const auto biased, part.config.Bool("position_biased_input"));
    if (!biased.value_or(true)) return NotOfTheInput(part, "position_biased_input", "false", "true");
  }
  if (const std::string_view flag = part.type.learned->only_if; !flag.empty()) {
    POSENC_ASSIGN_OR_RETURN(const auto adds, part.config.Bool(flag));
    if (!adds.value_or(true)) return NotOfTheInput(part, flag, "false", "true");
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> AtLeastOne(const Part& part, std::string_view field, int64_t otherwise) {
  POSENC_ASSIGN_OR_RETURN(const auto given, part.config.Integer({field}));
  if (given.value_or(otherwise) >= 1) return given.value_or(otherwise);
  return InvalidArgument("OUT_OF_RANGE", part.config.Path(field), fmt::format("{}", *given), "must be at least 1");
}

absl::StatusOr<int64_t> Tubelets(const Part& part, const LearnedTable& table) {
  POSENC_ASSIGN_OR_RETURN(const int64_t frames, AtLeastOne(part, "num_frames", 32));
  POSENC_ASSIGN_OR_RETURN(const Window image, SizeOf(part.config, "image_size", table.image_size));
  POSENC_ASSIGN_OR_RETURN(const auto given, part.config.Numbers("tubelet_size"));
  const std::vector<double> size = given.value_or(std::vector<double>{2, 16, 16});
  const auto whole = [](double x) { return x >= 1 && x <= 65536 && x == std::floor(x); };
  if (size.size() != 3 || !std::all_of(size.begin(), size.end(), whole)) {
    return InvalidArgument("OUT_OF_RANGE", part.config.Path("tubelet_size"), fmt::format("[{}]", fmt::join(size, ", ")),
                           "must be three whole numbers, 1 .. 65536");
  }
  int64_t tubelets = 1;
  const std::pair<std::string_view, int64_t> lengths[] = {
      {"num_frames", frames}, {"image_size", image.height}, {"image_size", image.width}};
  for (size_t n = 0; n < size.size(); ++n) {
    const auto& [field, length] = lengths[n];
    POSENC_ASSIGN_OR_RETURN(const int64_t count, CountOf(part.config, field, length, static_cast<int64_t>(size[n])));
    tubelets *= count;
  }
  return tubelets;
}

absl::StatusOr<int64_t> SpectrogramPatches(const Part& part, const LearnedTable& table) {
  POSENC_ASSIGN_OR_RETURN(const int64_t patch, AtLeastOne(part, "patch_size", table.patch_size));
  POSENC_ASSIGN_OR_RETURN(const int64_t bins, AtLeastOne(part, "num_mel_bins", 128));
  POSENC_ASSIGN_OR_RETURN(const int64_t by_bins, AtLeastOne(part, "frequency_stride", 10));
  POSENC_ASSIGN_OR_RETURN(const int64_t frames, AtLeastOne(part, "max_length", 1024));
  POSENC_ASSIGN_OR_RETURN(const int64_t by_frames, AtLeastOne(part, "time_stride", 10));
  POSENC_ASSIGN_OR_RETURN(const int64_t rows, CountOf(part.config, "num_mel_bins", bins, patch, by_bins));
  POSENC_ASSIGN_OR_RETURN(const int64_t columns, CountOf(part.config, "max_length", frames, patch, by_frames));
  return rows * columns;
}

// The rows for the table's items, and the grid that they are of, if the model resizes it.
struct Items {
  int64_t count = 0;
  std::vector<int64_t> grid;
  std::string order;
};

absl::StatusOr<Items> ItemsOf(Part& part, const LearnedTable& table) {
  switch (table.of) {
    case TableOf::kPositions: {
      POSENC_ASSIGN_OR_RETURN(const auto given, part.config.Length(table.positions_field));
      const int64_t positions = given.value_or(table.positions);
      if (!table.resize) return Items{positions + (table.start == TableStart::kTwo ? 2 : 0)};
      if (table.resize->mode == ResizeMode::kLinear) return Items{positions, {positions}};
      const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(positions))));
      if (side * side == positions) return Items{positions, {side, side}};
      return InvalidArgument("OUT_OF_RANGE", part.config.Path(table.positions_field), fmt::format("{}", positions),
                             "must be a square: the model resizes its table as one");
    }
    case TableOf::kGrid: {
      POSENC_ASSIGN_OR_RETURN(const int64_t rows, AtLeastOne(part, table.grid_fields[0], table.positions));
      POSENC_ASSIGN_OR_RETURN(const int64_t columns, AtLeastOne(part, table.grid_fields[1], table.positions));
      POSENC_ASSIGN_OR_RETURN(const int64_t height, CountOf(part.config, table.grid_fields[0], rows, 1));
      POSENC_ASSIGN_OR_RETURN(const int64_t width, CountOf(part.config, table.grid_fields[1], columns, 1));
      return Items{height * width, {height, width}, "patches, row by row"};
    }
    case TableOf::kImage: {
      const int64_t width = table.image_width != 0 ? table.image_width : table.image_size;
      POSENC_ASSIGN_OR_RETURN(const Window sides,
                              PatchesOf(part.config, table.image_field, {table.image_size, width}, table.patch_size));
      return Items{sides.height * sides.width, {sides.height, sides.width}, "patches, row by row"};
    }
    case TableOf::kVideo: {
      POSENC_ASSIGN_OR_RETURN(const int64_t tubelets, Tubelets(part, table));
      return Items{tubelets, {}, "tubelets, frame by frame, row by row"};
    }
    case TableOf::kSpectrogram: {
      POSENC_ASSIGN_OR_RETURN(const int64_t patches, SpectrogramPatches(part, table));
      return Items{patches, {}, "patches, frequency by frequency"};
    }
  }
  __builtin_unreachable();
}

absl::StatusOr<int64_t> TokensOf(const Part& part, std::string_view field, int64_t otherwise) {
  if (field.empty()) return otherwise;
  POSENC_ASSIGN_OR_RETURN(const auto given, part.config.Integer({field}));
  if (given.value_or(otherwise) >= 0) return given.value_or(otherwise);
  return InvalidArgument("OUT_OF_RANGE", part.config.Path(field), fmt::format("{}", *given), "must be at least 0");
}

absl::StatusOr<ResizeMode> ModeOf(const Part& part, const ResizeRule& rule) {
  if (rule.mode_field.empty()) return rule.mode;
  POSENC_ASSIGN_OR_RETURN(const auto given, part.config.String(rule.mode_field));
  for (const auto& [name, mode] : {std::pair{"nearest", ResizeMode::kNearest},
                                   {"bilinear", ResizeMode::kBilinear},
                                   {"bicubic", ResizeMode::kBicubic}}) {
    if (given == name) return mode;
  }
  if (!given) return rule.mode;
  return InvalidArgument("UNKNOWN_VALUE", part.config.Path(rule.mode_field), *given,
                         "must be nearest, bilinear or bicubic");
}

std::string InWords(const ResizeRule& rule, const TableResize& resize) {
  static constexpr std::string_view kModes[] = {"nearest", "linear", "bilinear", "bicubic"};
  std::string words = fmt::format("{}, align_corners {}, antialias {}", kModes[static_cast<size_t>(resize.mode)],
                                  resize.align_corners, resize.antialias);
  if (rule.added != 0) words += fmt::format(", with scale_factor (target + {}) / source", rule.added);
  if (const int64_t block = resize.spatial_merge_size.value_or(1); block != 1) {
    words += fmt::format(", cells in blocks of {} x {}", block, block);
  }
  return fmt::format("the model resizes the table from {} to the grid of its input{}: {}; give resize.target",
                     fmt::join(resize.source, " x "),
                     rule.on_request ? ", if called with interpolate_pos_encoding=True" : "", words);
}

// Reads how the model resizes the table.
absl::StatusOr<TableResize> ResizeOf(const Part& part, const ResizeRule& rule, std::vector<int64_t> grid) {
  TableResize resize{.source = std::move(grid),
                     .align_corners = rule.align_corners,
                     .antialias = rule.antialias,
                     .operations = rule.operations};
  POSENC_ASSIGN_OR_RETURN(resize.mode, ModeOf(part, rule));
  if (rule.block != 0) {
    POSENC_ASSIGN_OR_RETURN(resize.spatial_merge_size, AtLeastOne(part, "spatial_merge_size", rule.block));
  }
  return resize;
}

absl::Status ReadRows(Part& part, const LearnedTable& table, ModelTable& result) {
  POSENC_ASSIGN_OR_RETURN(Items items, ItemsOf(part, table));
  POSENC_ASSIGN_OR_RETURN(const int64_t before, TokensOf(part, table.tokens_before_field, table.tokens_before));
  POSENC_ASSIGN_OR_RETURN(const int64_t after, TokensOf(part, table.tokens_after_field, table.tokens_after));
  result.rows = items.count + before + after;
  const bool of_image = table.of != TableOf::kPositions && table.of != TableOf::kGrid;
  const std::string field(of_image ? table.image_field : "model_type");
  if (part.type.note.empty() && !items.order.empty()) {
    std::string tokens = fmt::format("the table has {} rows for tokens before the input, then {} for its {}", before,
                                     items.count, items.order);
    if (after != 0) tokens += fmt::format("; the last {} rows are for tokens after the input", after);
    part.Say("POSITIONS", field, std::move(tokens));
  }
  if (!table.note.empty()) part.Say("POSITIONS", "model_type", std::string(table.note));
  if (!table.resize) return absl::OkStatus();
  POSENC_ASSIGN_OR_RETURN(result.resize, ResizeOf(part, *table.resize, std::move(items.grid)));
  result.resize->rows_before = before, result.resize->rows_after = after;
  result.resize_added = table.resize->added;
  part.Say("RESIZED", field, InWords(*table.resize, *result.resize));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelTable> LearnedOf(Part& part) {
  const ConfigObject& config = part.config;
  if (!part.type.learned) return part.HasOther();
  POSENC_RETURN_IF_ERROR(CheckAddsTable(part));
  const LearnedTable& table = *part.type.learned;
  ModelTable result;
  POSENC_ASSIGN_OR_RETURN(const auto width, config.Integer({table.width_field}));
  result.width = width.value_or(table.width);
  POSENC_RETURN_IF_ERROR(ReadRows(part, table, result));
  part.SayNote();
  if (table.start == TableStart::kTwo) {
    result.offset = 2;
  } else if (table.start == TableStart::kAfterPadding) {
    std::optional<int64_t> padding;
    if (table.reads_padding) {
      POSENC_ASSIGN_OR_RETURN(padding, config.Integer({"pad_token_id"}));
    }
    result.offset = padding.value_or(table.padding) + 1;
    part.Say("POSITIONS", "pad_token_id",
             "the model numbers only tokens that are not padding; padding has the row before theirs: give token_valid");
  }
  return result;
}

}  // namespace posenc
