// HunyuanVL and GLM-Image, whose images are not part of the running count.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/positions/rules.h"
#include "posenc/positions/sequences.h"

namespace posenc {
namespace {

// Tokens that GLM-Image generates next.
struct DecodeIds {
  std::vector<double> t, h, w;
};

absl::StatusOr<int64_t> TokenIdOf(const ConfigObject& model, std::string_view field, int64_t otherwise) {
  POSENC_ASSIGN_OR_RETURN(const auto id, model.Integer({field}));
  return id.value_or(otherwise);
}

// Rows and columns of one grid, row by row.
void AppendGrid(const PatchGrid& grid, double start, DecodeIds* ids) {
  for (int64_t h = 0; h < grid.h; ++h) {
    InterruptionPoint();
    for (int64_t w = 0; w < grid.w; ++w) {
      ids->t.push_back(start);
      ids->h.push_back(start + static_cast<double>(h));
      ids->w.push_back(start + static_cast<double>(w));
    }
  }
}

// Places of a token id in the sequence.
std::vector<int64_t> PlacesOf(const Sequence& sequence, int64_t id) {
  std::vector<int64_t> places;
  for (int64_t n = 0; n < sequence.size(); ++n) {
    InterruptionPointOfStep(n);
    if (sequence.input_id(n) == id) places.push_back(n);
  }
  return places;
}

using Grids = std::span<const PatchGrid>;

// The grids of each sequence, which refer to `tokens`.
absl::StatusOr<std::vector<Grids>> GridsPerSample(const TokenDescription& tokens) {
  const Grids all = tokens.image_grid_thw ? Grids(*tokens.image_grid_thw) : Grids();
  const auto samples = static_cast<size_t>(tokens.counted());
  if (!tokens.images_per_sample) return std::vector<Grids>(samples, all);
  if (!tokens.image_grid_thw) return Requires("image_grid_thw", "images_per_sample says how many each sequence has");
  const std::vector<int64_t>& counts = *tokens.images_per_sample;
  if (counts.size() != samples) {
    return InvalidArgument("MISMATCH", "images_per_sample", fmt::format("{} values", counts.size()),
                           fmt::format("must be one for each sequence: {}", samples));
  }
  std::vector<Grids> result;
  size_t next = 0;
  for (const int64_t count : counts) {
    if (count < 0 || count > static_cast<int64_t>(all.size() - next)) {
      return InvalidArgument("MISMATCH", "images_per_sample", fmt::format("{}", count),
                             fmt::format("must sum to the number of grids in image_grid_thw: {}", all.size()));
    }
    result.push_back(all.subspan(next, count));
    next += count;
  }
  if (next == all.size()) return result;
  return InvalidArgument("MISMATCH", "images_per_sample", fmt::format("a sum of {}", next),
                         fmt::format("must sum to the number of grids in image_grid_thw: {}", all.size()));
}

// Writes decode_ids: shorter rows repeat their last position.
void WriteDecodeIds(const std::vector<DecodeIds>& rows, int64_t longest, CountedPositions* result) {
  result->decode_count = longest;
  for (const auto axis : {&DecodeIds::t, &DecodeIds::h, &DecodeIds::w}) {
    for (const DecodeIds& row : rows) {
      const std::vector<double>& ids = row.*axis;
      for (int64_t n = 0; n < longest; ++n) {
        InterruptionPointOfStep(n);
        result->decode_ids.push_back(ids[std::min<size_t>(n, ids.size() - 1)]);
      }
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> AxesOfHunyuanVl(const ConfigObject& model) {
  constexpr size_t kMostAxes = 64;
  std::string path = model.Path("text_config.rope_parameters.mrope_section");
  size_t axes = 0;
  POSENC_ASSIGN_OR_RETURN(const auto text, model.Object("text_config"));
  for (const std::string_view block : {"rope_parameters", "rope_scaling"}) {
    if (!text || axes > 0) break;
    POSENC_ASSIGN_OR_RETURN(const auto parameters, text->Object(block));
    for (const std::string_view field : {"mrope_section", "xdrope_section"}) {
      if (!parameters || axes > 0) break;
      POSENC_ASSIGN_OR_RETURN(const auto sections, parameters->Numbers(field));
      if (!sections) continue;
      axes = sections->size();
      path = parameters->Path(field);
    }
  }
  if (axes < 3 || axes > kMostAxes) {
    return InvalidArgument(
        "OUT_OF_RANGE", path, fmt::format("{} sections", axes),
        fmt::format("must be 3 .. {} sections: the last three are width, height and image", kMostAxes));
  }
  std::vector<std::string> names(axes - 3, "position");
  for (size_t n = 1; n < names.size(); ++n) names[n] += fmt::format("{}", n);
  names.insert(names.end(), {"w", "h", "image"});
  return names;
}

absl::Status CountHunyuanVl(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result) {
  int64_t merge = 2;
  POSENC_ASSIGN_OR_RETURN(const auto vision, model.Object("vision_config"));
  if (vision) {
    POSENC_ASSIGN_OR_RETURN(merge, CountInFile(*vision, "spatial_merge_size", merge));
  }
  GridQueue images("image_grid_thw", "image", tokens.image_grid_thw);
  const auto width = static_cast<int64_t>(result->axes.size()) - 3;
  const auto count = [&](Sequence& sequence) -> absl::Status {
    POSENC_RETURN_IF_ERROR(sequence.CheckKinds(TokenKind::kImage));
    sequence.Count(0, sequence.size(), 0);
    for (int64_t begin = 0, end; begin < sequence.size(); begin = end) {
      end = sequence.RunEnd(begin);
      PositionSpan span{.kind = static_cast<SpanKind>(sequence.kind(begin))};
      if (sequence.kind(begin) == TokenKind::kImage) {
        POSENC_ASSIGN_OR_RETURN(PatchGrid grid, images.TakeMerged(sequence, begin, end, 1, merge));
        grid = {1, grid.h, grid.w + 1};  // each row ends with one more token; frames are not read
        const int64_t cells = Cells(grid);
        const int64_t first = end - begin == cells + 2 ? begin + 1 : begin;  // the span may have both its markers
        if (first == begin) POSENC_RETURN_IF_ERROR(images.CheckSpan(sequence, begin, end, cells));
        span.grid = images.next() - 1;
        for (int64_t n = 0; n < cells; ++n) {
          InterruptionPointOfStep(n);
          sequence.id(width, first + n) = static_cast<double>(n % grid.w);
          const int64_t row = n / grid.w;
          sequence.id(width + 1, first + n) = static_cast<double>(row);
          sequence.id(width + 2, first + n) = static_cast<double>(*span.grid);
        }
      }
      sequence.AddSpan(span, begin, end);
    }
    return absl::OkStatus();
  };
  POSENC_RETURN_IF_ERROR(ForEachSequence(tokens, result, count));
  return images.CheckAllTaken();
}

absl::Status CountGlmImage(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result) {
  if (!tokens.has_input_ids) return Requires("input_ids", "the model finds images by them");
  POSENC_ASSIGN_OR_RETURN(const int64_t start_id, TokenIdOf(model, "image_start_token_id", 16384));
  POSENC_ASSIGN_OR_RETURN(const int64_t end_id, TokenIdOf(model, "image_end_token_id", 16385));
  POSENC_ASSIGN_OR_RETURN(const auto grids, GridsPerSample(tokens));
  std::vector<DecodeIds> decode;
  const auto count = [&](Sequence& sequence) -> absl::Status {
    const Grids own = grids[sequence.number()];
    const std::vector<int64_t> starts = PlacesOf(sequence, start_id), ends = PlacesOf(sequence, end_id);
    if (ends.size() > own.size() || ends.size() > starts.size()) {
      const bool few_starts = ends.size() > starts.size();
      return InvalidArgument(
          "MISMATCH", few_starts ? "input_ids" : "image_grid_thw",
          few_starts ? fmt::format("{} image starts", starts.size()) : fmt::format("{} grids", own.size()),
          fmt::format("must be at least {}, the images that end in sequence {}", ends.size(), sequence.number()));
    }
    double next = 0;
    int64_t text = 0;  // first token that is not counted yet
    for (size_t n = 0; n < ends.size(); ++n) {
      const int64_t begin = starts[n] + 1, end = ends[n];
      const PatchGrid& grid = own[n];
      if (begin < text || end < begin || Cells(grid) != end - begin) {
        return InvalidArgument("MISMATCH", fmt::format("image_grid_thw[{}]", n), ToString(grid),
                               fmt::format("must stand for as many tokens as are between image start and image end: "
                                           "{} in sequence {}",
                                           end - begin, sequence.number()));
      }
      sequence.Count(text, begin, next);
      sequence.AddSpan({.kind = SpanKind::kText}, text, begin);
      next += static_cast<double>(begin - text);
      for (int64_t cell = 0; cell < end - begin; ++cell) {
        InterruptionPointOfStep(cell);
        const int64_t frame = cell / (grid.h * grid.w);
        sequence.id(0, begin + cell) = next + static_cast<double>(frame);
        sequence.id(1, begin + cell) = next + static_cast<double>(cell / grid.w % grid.h);
        sequence.id(2, begin + cell) = next + static_cast<double>(cell % grid.w);
      }
      sequence.AddSpan({.kind = SpanKind::kImage, .grid = static_cast<int64_t>(n)}, begin, end);
      next += static_cast<double>(std::max(grid.h, grid.w));
      text = end;
    }
    sequence.Count(text, sequence.size(), next);
    sequence.AddSpan({.kind = SpanKind::kText}, text, sequence.size());
    next += static_cast<double>(sequence.size() - text);
    // The images that are still to come are generated from the last grid to the first.
    DecodeIds& ids = decode.emplace_back();
    for (size_t n = own.size(); n > ends.size(); --n) {
      const PatchGrid grid = {1, own[n - 1].h, own[n - 1].w};
      POSENC_RETURN_IF_ERROR(result->Reserve(3 * Cells(grid)));
      AppendGrid(grid, next, &ids);
      next += static_cast<double>(std::max(grid.h, grid.w));
    }
    AppendGrid({1, 1, 1}, next, &ids);
    return absl::OkStatus();
  };
  POSENC_RETURN_IF_ERROR(ForEachSequence(tokens, result, count));
  result->deltas.assign(result->deltas.size(), 0);
  if (!tokens.image_grid_thw) return absl::OkStatus();
  size_t longest = 0;
  for (const DecodeIds& row : decode) longest = std::max(longest, row.t.size());
  POSENC_RETURN_IF_ERROR(result->Reserve(static_cast<int64_t>(3 * longest * decode.size())));
  WriteDecodeIds(decode, static_cast<int64_t>(longest), result);
  return absl::OkStatus();
}

}  // namespace posenc
