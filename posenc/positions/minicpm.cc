// MiniCPM-V 4.7. A picture is a thumbnail and, if it is large, slices that tile it. Both lie on one canvas, so that a
// thumbnail's token and the slices' tokens at the same place have the same position. Markers are at the corners.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/positions/rules.h"
#include "posenc/positions/sequences.h"

namespace posenc {
namespace {

struct Crop {
  int64_t begin, end;
};

struct Frame {
  TokenKind kind;
  Crop thumbnail;
  std::vector<Crop> slices;
  int64_t end = 0;  // after the markers that close it
};

// Frames that only markers separate.
struct FrameGroup {
  int64_t begin;  // the marker before its first thumbnail
  std::vector<Frame> frames;
};

struct Markers {
  std::array<int64_t, 5> ids;  // slice start, slice end, image start, image end, newline

  bool Has(int64_t id) const { return std::find(ids.begin(), ids.end(), id) != ids.end(); }
  int64_t slice_start() const { return ids[0]; }
};

absl::StatusOr<Markers> MarkersOf(const ConfigObject& model) {
  Markers markers;
  size_t n = 0;
  for (const std::string_view field :
       {"slice_start_id", "slice_end_id", "image_start_id", "image_end_id", "newline_id"}) {
    POSENC_ASSIGN_OR_RETURN(const auto id, model.Integer({field}));
    markers.ids[n++] = id.value_or(-1);  // the class compares with None
  }
  return markers;
}

absl::StatusOr<int64_t> MergeFactorOf(const ConfigObject& model, const TokenDescription& tokens) {
  POSENC_ASSIGN_OR_RETURN(const auto given, model.String("downsample_mode"));
  const std::string mode = tokens.downsample_mode.empty() ? given.value_or("16x") : tokens.downsample_mode;
  return mode == "4x" ? 2 : 4;
}

absl::StatusOr<std::vector<FrameGroup>> GroupFrames(const Sequence& sequence, const Markers& markers) {
  std::vector<FrameGroup> groups;
  int64_t previous_end = 0;
  for (int64_t begin = 0, end; begin < sequence.size(); begin = end) {
    end = sequence.RunEnd(begin);
    if (sequence.kind(begin) == TokenKind::kText) continue;
    if (begin == 0 || (begin == previous_end && previous_end > 0)) {
      return InvalidArgument(
          "MISMATCH", "mm_token_type_ids", fmt::format("{}", static_cast<int>(sequence.kind(begin))),
          fmt::format("must follow a marker: the span {} has none before it", sequence.Place(begin, end)));
    }
    if (!groups.empty() && sequence.input_id(begin - 1) == markers.slice_start()) {
      groups.back().frames.back().slices.push_back({begin, end});
    } else {
      bool adjacent = !groups.empty();
      for (int64_t n = previous_end; adjacent && n < begin - 1; ++n) adjacent = markers.Has(sequence.input_id(n));
      if (!adjacent) groups.push_back({begin - 1, {}});
      groups.back().frames.push_back({sequence.kind(begin), {begin, end}, {}});
    }
    previous_end = end;
  }
  for (FrameGroup& group : groups) {
    for (Frame& frame : group.frames) {
      frame.end = frame.slices.empty() ? frame.thumbnail.end : frame.slices.back().end;
      while (frame.end < sequence.size() && markers.Has(sequence.input_id(frame.end))) ++frame.end;
    }
  }
  return groups;
}

// torch.linspace(0, last, count) in float32, rounded to the nearest even: it steps from both ends.
int64_t Coordinate(int64_t n, int64_t count, int64_t last) {
  if (count == 1) return 0;
  const auto end = static_cast<float>(last);
  const float step = end / static_cast<float>(count - 1);
  const float value = n < count / 2 ? step * static_cast<float>(n) : end - step * static_cast<float>(count - n - 1);
  return static_cast<int64_t>(std::nearbyintf(value));
}

class Canvas {
 public:
  Canvas(Sequence& sequence, double origin) : sequence_(sequence), origin_(origin) {}

  void Place(int64_t token, int64_t h, int64_t w) {
    sequence_.id(1, token) = origin_ + static_cast<double>(h);
    sequence_.id(2, token) = origin_ + static_cast<double>(w);
  }
  // Writes a crop that covers `height` x `width` cells of the canvas from (h, w) on.
  void PlaceCrop(const Crop& crop, const PatchGrid& grid, int64_t height, int64_t width, int64_t h, int64_t w) {
    for (int64_t n = 0; n < crop.end - crop.begin; ++n) {
      InterruptionPointOfStep(n);
      sequence_.id(0, crop.begin + n) = origin_;
      Place(crop.begin + n, h + Coordinate(n / grid.w, grid.h, height - 1),
            w + Coordinate(n % grid.w, grid.w, width - 1));
    }
  }

 private:
  Sequence& sequence_;
  const double origin_;
};

// Slices are in rows; between two rows are more tokens than the markers of two neighbours.
int64_t ColumnsOf(const std::vector<Crop>& slices) {
  const auto count = static_cast<int64_t>(slices.size());
  int64_t columns = count;
  for (int64_t k = 0; k + 1 < count; ++k) {
    if (slices[k + 1].begin - slices[k].end <= 2) continue;
    columns = k + 1;
    break;
  }
  return count % columns == 0 ? columns : count;
}

absl::StatusOr<PatchGrid> TakeCrop(Sequence& sequence, GridQueue& sizes, const Frame& frame, const Crop& crop,
                                   int64_t merge) {
  POSENC_ASSIGN_OR_RETURN(const PatchGrid grid, sizes.TakeMerged(sequence, crop.begin, crop.end, 1, merge));
  POSENC_RETURN_IF_ERROR(sizes.CheckSpan(sequence, crop.begin, crop.end, Cells(grid)));
  sequence.AddSpan({.kind = static_cast<SpanKind>(frame.kind), .grid = sizes.next() - 1}, crop.begin, crop.end);
  return grid;
}

// Writes a frame from its marker on and returns the position after it.
absl::StatusOr<double> PlaceFrame(Sequence& sequence, GridQueue& sizes, const Frame& frame, int64_t frame_end,
                                  int64_t merge, double origin) {
  const auto& [kind, thumbnail, slices, unused] = frame;
  const int64_t frame_begin = thumbnail.begin - 1;
  POSENC_ASSIGN_OR_RETURN(const PatchGrid grid, TakeCrop(sequence, sizes, frame, thumbnail, merge));
  std::vector<PatchGrid> tiles;
  for (const Crop& slice : slices) {
    POSENC_ASSIGN_OR_RETURN(const PatchGrid tile, TakeCrop(sequence, sizes, frame, slice, merge));
    tiles.push_back(tile);
  }
  const int64_t columns = slices.empty() ? 0 : ColumnsOf(slices);
  const int64_t tile_h = slices.empty() ? 0 : tiles[0].h, tile_w = slices.empty() ? 0 : tiles[0].w;
  int64_t height = grid.h, width = grid.w;
  if (!slices.empty()) {
    height = static_cast<int64_t>(slices.size()) / columns * tile_h;
    width = columns * tile_w;
  }
  Canvas canvas(sequence, origin);
  for (int64_t n = frame_begin; n < frame_end; ++n) {
    sequence.id(0, n) = origin;
    canvas.Place(n, 0, 0);
  }
  sequence.id(1, frame_begin) = sequence.id(2, frame_begin) = std::max(origin - 1, 0.0);
  if (thumbnail.end < frame_end) canvas.Place(thumbnail.end, height, width);
  canvas.PlaceCrop(thumbnail, grid, height, width, 0, 0);
  for (size_t k = 0; k < slices.size(); ++k) {
    const auto row = static_cast<int64_t>(k) / columns, column = static_cast<int64_t>(k) % columns;
    const int64_t h = row * tile_h, w = column * tile_w;
    if (slices[k].begin - 1 >= frame_begin) canvas.Place(slices[k].begin - 1, h, w);
    if (slices[k].end < frame_end) canvas.Place(slices[k].end, h + tiles[k].h - 1, w + tiles[k].w - 1);
    canvas.PlaceCrop(slices[k], tiles[k], tiles[k].h, tiles[k].w, h, w);
  }
  for (size_t k = 0; k + 1 < slices.size(); ++k) {
    if (slices[k + 1].begin - slices[k].end <= 2) continue;
    for (int64_t n = slices[k].end + 1; n < slices[k + 1].begin - 1; ++n) {
      canvas.Place(n, (static_cast<int64_t>(k) / columns + 1) * tile_h - 1, columns * tile_w);
    }
  }
  return origin + static_cast<double>(std::max(height, width) + 1);
}

}  // namespace

absl::Status CountMiniCpm(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result) {
  if (!tokens.has_input_ids) return Requires("input_ids", "the model finds markers by them");
  POSENC_ASSIGN_OR_RETURN(const Markers markers, MarkersOf(model));
  POSENC_ASSIGN_OR_RETURN(const int64_t merge, MergeFactorOf(model, tokens));
  GridQueue images("target_sizes", "crop of an image", tokens.target_sizes);
  GridQueue videos("target_sizes_videos", "crop of a video", tokens.target_sizes_videos);
  const auto count = [&](Sequence& sequence) -> absl::Status {
    POSENC_RETURN_IF_ERROR(sequence.CheckKinds(TokenKind::kVideo));
    POSENC_ASSIGN_OR_RETURN(const std::vector<FrameGroup> groups, GroupFrames(sequence, markers));
    double next = 0;
    int64_t done = 0;
    // Counts the text up to token `end`.
    const auto count_text = [&](int64_t end) {
      if (end <= done) return false;
      sequence.Count(done, end, next);
      sequence.AddSpan({.kind = SpanKind::kText}, done, end);
      next += static_cast<double>(end - done);
      done = end;
      return true;
    };
    for (const FrameGroup& group : groups) {
      count_text(group.begin);
      done = group.begin;
      const int64_t group_end = group.frames.back().end;
      for (const Frame& frame : group.frames) {
        if (count_text(frame.thumbnail.begin - 1)) next += 1;  // one step past the tokens between two frames
        const int64_t end = std::min(frame.end, group_end);
        POSENC_ASSIGN_OR_RETURN(
            next, PlaceFrame(sequence, frame.kind == TokenKind::kVideo ? videos : images, frame, end, merge, next));
        done = end;
      }
      count_text(group_end);
    }
    count_text(sequence.size());
    return absl::OkStatus();
  };
  POSENC_RETURN_IF_ERROR(ForEachSequence(tokens, result, count));
  POSENC_RETURN_IF_ERROR(images.CheckAllTaken());
  return videos.CheckAllTaken();
}

}  // namespace posenc
