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

absl::StatusOr<int64_t> RowsOf(Part& part, const LearnedTable& table) {
  int64_t patches = 0;
  std::string order;
  switch (table.of) {
    case TableOf::kPositions: {
      POSENC_ASSIGN_OR_RETURN(const auto positions, part.config.Length(table.positions_field));
      return positions.value_or(table.positions) + (table.start == TableStart::kTwo ? 2 : 0);
    }
    case TableOf::kImage: {
      const int64_t width = table.image_width != 0 ? table.image_width : table.image_size;
      POSENC_ASSIGN_OR_RETURN(const Window sides,
                              PatchesOf(part.config, table.image_field, {table.image_size, width}, table.patch_size));
      patches = sides.height * sides.width;
      order = "patches, row by row; for an image of another size the model resizes the table first";
      break;
    }
    case TableOf::kVideo: {
      POSENC_ASSIGN_OR_RETURN(patches, Tubelets(part, table));
      order = "tubelets, frame by frame, row by row";
      break;
    }
    case TableOf::kSpectrogram: {
      POSENC_ASSIGN_OR_RETURN(patches, SpectrogramPatches(part, table));
      order = "patches, frequency by frequency";
      break;
    }
  }
  int64_t after = table.tokens_after;
  if (!table.tokens_after_field.empty()) {
    POSENC_ASSIGN_OR_RETURN(const auto given, part.config.Integer({table.tokens_after_field}));
    after = given.value_or(after);
  }
  if (after < 0) {
    return InvalidArgument("OUT_OF_RANGE", part.config.Path(table.tokens_after_field), fmt::format("{}", after),
                           "must be at least 0");
  }
  if (part.type.note.empty()) {
    std::string tokens = fmt::format("the table has {} rows for tokens before the input, then {} for its {}",
                                     table.tokens_before, patches, order);
    if (after != 0) tokens += fmt::format("; the last {} rows are for tokens after the input", after);
    part.Say("POSITIONS", std::string(table.image_field), std::move(tokens));
  }
  return patches + table.tokens_before + after;
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
  POSENC_ASSIGN_OR_RETURN(result.rows, RowsOf(part, table));
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
