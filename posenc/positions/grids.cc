// Qwen2-VL and its relatives: text counts tokens; a grid's token has its frame, row and column, each added to the
// position at which the grid begins.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/positions/rules.h"
#include "posenc/positions/sequences.h"

namespace posenc {
namespace {

struct GridOptions {
  bool frames = false;        // a span per frame, t = 0
  int64_t merge = 2;          // spatial_merge_size
  int64_t video_merge_t = 1;  // temporal_merge_size
  bool padded_rows = false;   // each row ends with one more token, and frames continue diagonally
  // Positions between the frames of the n-th video, which the class multiplies in float32.
  std::vector<double> intervals;
  double per_second = 0;  // tokens_per_second
  std::string per_second_field;
};

// OUT_OF_RANGE unless the frames' positions are exact.
absl::Status CheckInterval(const GridOptions& options, const PatchGrid& grid, double start, double interval) {
  const double last = start + static_cast<double>(grid.t) * interval;
  if (last <= kLargestPosition) return absl::OkStatus();
  return InvalidArgument(
      "OUT_OF_RANGE", options.per_second_field, fmt::format("{}", options.per_second),
      fmt::format("must keep positions within 2^53: frames of a video of {} are {} apart", grid.t, interval));
}

absl::StatusOr<int64_t> MergeOf(const ConfigObject& model, std::string_view field) {
  POSENC_ASSIGN_OR_RETURN(const auto vision, model.Object("vision_config"));
  if (!vision) return 2;
  return CountInFile(*vision, field, 2);
}

// Writes a grid's ids from token `begin` on and returns the position after it. Frame t is at the whole part of
// t * interval; with `step`, it begins at t * step on all three axes.
double PlaceGrid(Sequence& sequence, int64_t begin, const PatchGrid& grid, double start, float interval, int64_t step) {
  double next = start;
  int64_t n = begin;
  for (int64_t t = 0; t < grid.t; ++t) {
    const double corner = start + static_cast<double>(t * step);
    const double frame = corner + static_cast<double>(static_cast<int64_t>(static_cast<float>(t) * interval));
    for (int64_t h = 0; h < grid.h; ++h) {
      InterruptionPoint();
      for (int64_t w = 0; w < grid.w; ++w, ++n) {
        sequence.id(0, n) = frame;
        sequence.id(1, n) = corner + static_cast<double>(h);
        sequence.id(2, n) = corner + static_cast<double>(w);
      }
    }
    next = corner + static_cast<double>(std::max(grid.h, grid.w));
  }
  return next;
}

absl::Status CountGrids(const TokenDescription& tokens, const GridOptions& options, CountedPositions* result) {
  GridQueue images("image_grid_thw", "image", tokens.image_grid_thw);
  GridQueue videos("video_grid_thw", "video", tokens.video_grid_thw, options.frames);
  const auto count = [&](Sequence& sequence) -> absl::Status {
    POSENC_RETURN_IF_ERROR(sequence.CheckKinds(TokenKind::kVideo));
    double next = 0;
    for (int64_t begin = 0, end; begin < sequence.size(); begin = end) {
      end = sequence.RunEnd(begin);
      const TokenKind kind = sequence.kind(begin);
      PositionSpan span{.kind = static_cast<SpanKind>(kind)};
      if (kind == TokenKind::kText) {
        sequence.Count(begin, end, next);
        next += static_cast<double>(end - begin);
      } else {
        const bool is_video = kind == TokenKind::kVideo;
        GridQueue& queue = is_video ? videos : images;
        POSENC_ASSIGN_OR_RETURN(PatchGrid grid, queue.TakeMerged(sequence, begin, end,
                                                                 is_video ? options.video_merge_t : 1, options.merge));
        if (options.padded_rows) ++grid.w;
        POSENC_RETURN_IF_ERROR(queue.CheckSpan(sequence, begin, end, Cells(grid)));
        span.grid = queue.row();
        if (is_video && options.frames) span.frame = queue.frame();
        const double interval = options.padded_rows                      ? 0
                                : is_video && !options.intervals.empty() ? options.intervals[queue.row()]
                                                                         : 1;
        POSENC_RETURN_IF_ERROR(CheckInterval(options, grid, next, interval));
        const int64_t step = options.padded_rows ? std::max(grid.h, grid.w) : 0;
        next = PlaceGrid(sequence, begin, grid, next, static_cast<float>(interval), step);
      }
      sequence.AddSpan(span, begin, end);
    }
    return absl::OkStatus();
  };
  POSENC_RETURN_IF_ERROR(ForEachSequence(tokens, result, count));
  POSENC_RETURN_IF_ERROR(images.CheckAllTaken());
  return videos.CheckAllTaken();
}

}  // namespace

absl::Status CountByGrids(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result) {
  GridOptions options;
  POSENC_ASSIGN_OR_RETURN(options.merge, MergeOf(model, "spatial_merge_size"));
  return CountGrids(tokens, options, result);
}

absl::Status CountBySeconds(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result) {
  GridOptions options;
  POSENC_ASSIGN_OR_RETURN(options.merge, MergeOf(model, "spatial_merge_size"));
  double per_second = 4;
  options.per_second_field = model.Path("vision_config.tokens_per_second");
  POSENC_ASSIGN_OR_RETURN(const auto vision, model.Object("vision_config"));
  if (vision) {
    POSENC_ASSIGN_OR_RETURN(const auto given, vision->Number({"tokens_per_second"}));
    per_second = given.value_or(per_second);
    options.per_second_field = vision->Path("tokens_per_second");
  }
  if (!(per_second >= 0 && per_second <= kLargestPosition)) {  // not NaN
    return InvalidArgument("OUT_OF_RANGE", options.per_second_field, fmt::format("{}", per_second),
                           "must be 0 .. 2^53");
  }
  options.per_second = per_second;
  const size_t videos = tokens.video_grid_thw ? tokens.video_grid_thw->size() : 0;
  options.intervals.assign(videos, per_second);
  if (tokens.second_per_grid_ts) {
    POSENC_RETURN_IF_ERROR(CheckSeconds(tokens));
    for (size_t n = 0; n < videos; ++n) {
      const double seconds = (*tokens.second_per_grid_ts)[n];
      options.intervals[n] = tokens.seconds_are_float32 ? static_cast<float>(per_second) * static_cast<float>(seconds)
                                                        : per_second * seconds;
    }
  }
  return CountGrids(tokens, options, result);
}

absl::Status CountByFrames(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result) {
  GridOptions options{.frames = true};
  POSENC_ASSIGN_OR_RETURN(options.merge, MergeOf(model, "spatial_merge_size"));
  return CountGrids(tokens, options, result);
}

absl::Status CountByMergedFrames(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result) {
  GridOptions options;
  POSENC_ASSIGN_OR_RETURN(options.merge, MergeOf(model, "spatial_merge_size"));
  POSENC_ASSIGN_OR_RETURN(options.video_merge_t, MergeOf(model, "temporal_merge_size"));
  return CountGrids(tokens, options, result);
}

absl::Status CountByPaddedRows(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result) {
  GridOptions options{.padded_rows = true};
  POSENC_ASSIGN_OR_RETURN(options.merge, MergeOf(model, "spatial_merge_size"));
  return CountGrids(tokens, options, result);
}

}  // namespace posenc
