#include "posenc/model/part_learned.h"

#include <fmt/format.h>

#include "posenc/model/part_window.h"
#include "posenc/status.h"

namespace posenc {
namespace {

absl::Status NotOfTheInput(const Part& part, std::string_view field, std::string_view value, std::string_view wanted) {
  return InvalidArgument(
      "UNSUPPORTED", part.config.Path(field), value,
      fmt::format("model_type \"{}\" adds its table of positions only where this is {}", part.type.name, wanted));
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
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Patches(const Part& part, const LearnedTable& table) {
  POSENC_ASSIGN_OR_RETURN(const Window image, SizeOf(part.config, "image_size", table.image_size));
  POSENC_ASSIGN_OR_RETURN(const Window patch, SizeOf(part.config, "patch_size", table.patch_size));
  const int64_t rows = image.height / patch.height, columns = image.width / patch.width;
  constexpr int64_t kMost = 65536;
  if (rows <= kMost && columns <= kMost) return rows * columns;
  return InvalidArgument("OUT_OF_RANGE", part.config.Path("image_size"), fmt::format("{} x {} patches", rows, columns),
                         fmt::format("must be at most {} a side", kMost));
}

}  // namespace

absl::StatusOr<ModelTable> LearnedOf(Part& part) {
  const ConfigObject& config = part.config;
  if (!part.type.learned) {
    return InvalidArgument("UNSUPPORTED", config.Path("model_type"), part.type.name,
                           fmt::format("has {}", SchemeName(part.type.scheme)));
  }
  POSENC_RETURN_IF_ERROR(CheckAddsTable(part));
  const LearnedTable& table = *part.type.learned;
  ModelTable result;
  POSENC_ASSIGN_OR_RETURN(const auto width, config.Integer({table.width_field}));
  result.width = width.value_or(table.width);
  if (table.patch_size != 0) {
    POSENC_ASSIGN_OR_RETURN(const int64_t patches, Patches(part, table));
    result.rows = patches + table.tokens_before;
    part.Say(
        "POSITIONS", "image_size",
        fmt::format("rows are of {} tokens before the image, then its {} patches, row by row; for an image of another "
                    "size the model resizes the table first",
                    table.tokens_before, patches));
    return result;
  }
  POSENC_ASSIGN_OR_RETURN(const auto positions, config.Length(table.positions_field));
  result.rows = positions.value_or(table.positions);
  if (table.start == TableStart::kTwo) {
    result.offset = 2;
    result.rows += 2;
  } else if (table.start == TableStart::kAfterPadding) {
    POSENC_ASSIGN_OR_RETURN(const auto padding, config.Integer({"pad_token_id"}));
    result.offset = padding.value_or(table.padding) + 1;
    part.Say("POSITIONS", "pad_token_id",
             "the model counts the tokens that are not padding, and padding has the row before: give token_valid");
  }
  return result;
}

}  // namespace posenc
