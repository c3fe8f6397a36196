// Qwen3-Omni: as Qwen2.5-Omni, but in float32 with fractions, found by start tokens, and with a video's frames merged
// with its audio by their positions.
#include <algorithm>
#include <vector>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/positions/omni.h"
#include "posenc/positions/rules.h"

namespace posenc {
namespace {

int64_t AudioTokens3(int64_t frames, int64_t window) {
  const int64_t chunk = 2 * window;
  const int64_t features = FloorDivide(frames % chunk - 1, 2) + 1;
  return FloorDivide(FloorDivide(features - 1, 2) + 1 - 1, 2) + 1 + frames / chunk * 13;
}

// Sums are rounded to float32.
float Add(double a, double b) { return static_cast<float>(a) + static_cast<float>(b); }

std::vector<Place3> FloatPlaces(const PatchGrid& grid, float seconds, double per_second, double start) {
  std::vector<Place3> places = GridPlaces(grid, TimesOf(grid.t, seconds, per_second), 0);
  for (Place3& place : places) place = {Add(place.t, start), Add(place.h, start), Add(place.w, start)};
  return places;
}

std::vector<Place3> FloatCount(int64_t count, double start) {
  std::vector<Place3> places(count);
  for (int64_t n = 0; n < count; ++n) {
    InterruptionPointOfStep(n);
    places[n].t = places[n].h = places[n].w = Add(static_cast<double>(n), start);
  }
  return places;
}

absl::StatusOr<std::vector<Place3>> VideoPlaces3(OmniItems& items, const Sequence& sequence, const OmniSpan& span,
                                                 double start) {
  POSENC_ASSIGN_OR_RETURN(const PatchGrid grid, items.Take(items.videos, sequence, span));
  POSENC_ASSIGN_OR_RETURN(const float seconds, items.Seconds());
  return FloatPlaces(grid, seconds, items.settings.per_second, start);
}

// Merges by position; a frame's token goes first.
absl::Status AppendMerged(const std::vector<Place3>& video, const std::vector<Place3>& audio, PieceWriter* writer) {
  size_t v = 0, a = 0;
  while (v < video.size() && a < audio.size()) {
    POSENC_RETURN_IF_ERROR(writer->Append({video[v].t <= audio[a].t ? video[v++] : audio[a++]}));
  }
  POSENC_RETURN_IF_ERROR(writer->Append({video.begin() + static_cast<int64_t>(v), video.end()}));
  return writer->Append({audio.begin() + static_cast<int64_t>(a), audio.end()});
}

absl::Status AppendFloatCount(int64_t count, PieceWriter* writer) {
  if (count < 0) return writer->AppendCount(count, 0);
  return writer->Append(FloatCount(count, writer->next()));
}

absl::Status CountSequence3(Sequence& sequence, OmniItems& items) {
  const OmniSettings& settings = items.settings;
  const bool both = items.tokens.use_audio_in_video;
  POSENC_ASSIGN_OR_RETURN(OmniCounts left, CountItems(sequence, settings, both));
  TokenFinder finder(sequence);
  const bool has_vision =
      finder.Find(settings.image_id, 0) < sequence.size() || finder.Find(settings.video_id, 0) < sequence.size();
  const bool has_audio = finder.Find(settings.audio_id, 0) < sequence.size();
  const int64_t all = left.images + left.audios + (both ? 0 : left.videos);
  PieceWriter writer(sequence);
  // Appends counted tokens and their span of text.
  const auto text = [&](int64_t count) -> absl::Status {
    const int64_t begin = writer.size();
    POSENC_RETURN_IF_ERROR(AppendFloatCount(count, &writer));
    POSENC_RETURN_IF_ERROR(CheckText(sequence, settings, begin, writer.size()));
    writer.AddSpan({.kind = SpanKind::kText}, begin);
    return absl::OkStatus();
  };
  for (int64_t item = 0; item < all; ++item) {
    InterruptionPoint();
    const int64_t none = sequence.size() + 1;
    const bool vision_left = has_vision && left.videos + left.images > 0;
    const int64_t vision = vision_left ? finder.Find(settings.vision_start_id, writer.size()) : none;
    const int64_t audio = has_audio && left.audios > 0 ? finder.Find(settings.audio_start_id, writer.size()) : none;
    const int64_t first = std::min(vision, audio);
    const bool is_both = first == vision && vision + 1 == audio;
    POSENC_RETURN_IF_ERROR(text(first - writer.size()));
    POSENC_RETURN_IF_ERROR(text(is_both ? 2 : 1));
    const int64_t begin = writer.size();
    const double start = writer.next();
    const int64_t inside = first + 1 < sequence.size() ? sequence.input_id(first + 1) : -1;
    PositionSpan span;
    if (first == audio) {
      POSENC_ASSIGN_OR_RETURN(const int64_t count,
                              items.TakeAudio(sequence, RunOf(sequence, begin, settings.audio_id)));
      POSENC_RETURN_IF_ERROR(writer.Append(FloatCount(count, start)));
      span = {.kind = SpanKind::kAudio, .audio = items.next_audio - 1};
      --left.audios;
    } else if (inside == settings.image_id) {
      POSENC_ASSIGN_OR_RETURN(const PatchGrid grid,
                              items.Take(items.images, sequence, RunOf(sequence, begin, settings.image_id)));
      POSENC_RETURN_IF_ERROR(writer.Append(FloatPlaces(grid, 1, settings.per_second, start)));
      span = {.kind = SpanKind::kImage, .grid = items.images.next() - 1};
      --left.images;
    } else if (inside == settings.video_id) {
      const OmniSpan run = RunOf(sequence, begin, settings.video_id);
      POSENC_ASSIGN_OR_RETURN(const std::vector<Place3> places, VideoPlaces3(items, sequence, run, start));
      POSENC_RETURN_IF_ERROR(writer.Append(places));
      span = {.kind = SpanKind::kVideo, .grid = items.videos.next() - 1};
      --left.videos;
    } else if (is_both) {
      const OmniSpan audio_run = RunOf(sequence, begin, settings.audio_id, settings.video_id),
                     video_run = RunOf(sequence, begin, settings.video_id, settings.audio_id);
      POSENC_ASSIGN_OR_RETURN(const int64_t count, items.TakeAudio(sequence, audio_run));
      POSENC_ASSIGN_OR_RETURN(const std::vector<Place3> places, VideoPlaces3(items, sequence, video_run, start));
      POSENC_RETURN_IF_ERROR(AppendMerged(places, FloatCount(count, start), &writer));
      span = {.kind = SpanKind::kVideoAndAudio, .grid = items.videos.next() - 1, .audio = items.next_audio - 1};
      --left.videos;
      --left.audios;
    }
    writer.AddSpan(span, begin);
    POSENC_RETURN_IF_ERROR(CheckLargest(writer, settings));
    POSENC_RETURN_IF_ERROR(text(is_both ? 2 : 1));
  }
  return text(sequence.size() - writer.size());
}

absl::Status CountAll3(const ConfigObject& model, const OmniClass& of, const TokenDescription& tokens,
                       CountedPositions* result) {
  POSENC_ASSIGN_OR_RETURN(const OmniSettings settings, OmniSettingsOf(model, of));
  OmniItems items(tokens, settings, AudioTokens3);
  if (!tokens.image_grid_thw && !tokens.video_grid_thw) {
    return CountWithoutGrids(items, settings.talker && !tokens.audio_seqlens, result);
  }
  if (!tokens.has_input_ids) return Requires("input_ids", "the model finds images, videos and audio by them");
  POSENC_RETURN_IF_ERROR(
      ForEachSequence(tokens, result, [&](Sequence& sequence) { return CountSequence3(sequence, items); }));
  return items.CheckAllTaken();
}

}  // namespace

absl::Status CountQwen3Omni(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result) {
  return CountAll3(model, {.talker = false, .audio_start_id = 151647}, tokens, result);
}

absl::Status CountQwen3Talker(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result) {
  return CountAll3(model, {.talker = true, .audio_start_id = 151669}, tokens, result);
}

}  // namespace posenc
