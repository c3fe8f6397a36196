// Qwen2.5-Omni: a video's frames are as far apart as their seconds say; with its audio they are interleaved in chunks
// of equal time.
#include <algorithm>
#include <cmath>
#include <vector>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"
#include "posenc/positions/omni.h"
#include "posenc/positions/rules.h"

namespace posenc {
namespace {

int64_t AudioTokens(int64_t frames, int64_t) { return FloorDivide((frames - 1) / 2 + 1 - 2, 2) + 1; }

std::vector<float> WholeTimes(int64_t frames, float seconds, double per_second) {
  std::vector<float> times = TimesOf(frames, seconds, per_second);
  for (float& time : times) time = std::trunc(time);
  return times;
}

std::vector<Place3> AudioPlaces(int64_t count, double start) {
  std::vector<Place3> places(count);
  for (int64_t n = 0; n < count; ++n) {
    InterruptionPointOfStep(n);
    places[n].t = places[n].h = places[n].w = start + static_cast<double>(n);
  }
  return places;
}

// Ends of the chunks of `positions` positions each. A chunk ends before the first token past its end; a token ends at
// most one chunk.
std::vector<size_t> ChunkEnds(const std::vector<Place3>& places, int64_t positions, double start) {
  std::vector<size_t> ends;
  double chunk = 1;
  for (size_t n = 0; n < places.size(); ++n) {
    if (places[n].t - start < chunk * static_cast<double>(positions)) continue;
    ends.push_back(n);
    chunk += 1;
  }
  ends.push_back(places.size());
  return ends;
}

// Appends the n-th chunk, if there is one.
absl::Status AppendChunk(const std::vector<Place3>& places, const std::vector<size_t>& ends, size_t n,
                         PieceWriter* writer) {
  if (n >= ends.size()) return absl::OkStatus();
  const auto begin = static_cast<int64_t>(n == 0 ? 0 : ends[n - 1]);
  return writer->Append({places.begin() + begin, places.begin() + static_cast<int64_t>(ends[n])});
}

absl::Status AppendImage(OmniItems& items, const Sequence& sequence, PieceWriter* writer) {
  const int64_t begin = writer->size();
  POSENC_ASSIGN_OR_RETURN(const PatchGrid grid,
                          items.Take(items.images, sequence, RunOf(sequence, begin, items.settings.image_id)));
  POSENC_RETURN_IF_ERROR(
      writer->Append(GridPlaces(grid, WholeTimes(grid.t, 1, items.settings.per_second), writer->next())));
  writer->AddSpan({.kind = SpanKind::kImage, .grid = items.images.next() - 1}, begin);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Place3>> VideoPlaces(OmniItems& items, const Sequence& sequence, const OmniSpan& span,
                                                double start) {
  POSENC_ASSIGN_OR_RETURN(const PatchGrid grid, items.Take(items.videos, sequence, span));
  POSENC_ASSIGN_OR_RETURN(const float seconds, items.Seconds());
  return GridPlaces(grid, WholeTimes(grid.t, seconds, items.settings.per_second), start);
}

absl::Status AppendAudio(OmniItems& items, const Sequence& sequence, PieceWriter* writer) {
  const int64_t begin = writer->size();
  POSENC_ASSIGN_OR_RETURN(const int64_t count,
                          items.TakeAudio(sequence, RunOf(sequence, begin, items.settings.audio_id)));
  POSENC_RETURN_IF_ERROR(writer->AppendCount(count, writer->next()));
  writer->AddSpan({.kind = SpanKind::kAudio, .audio = items.next_audio - 1}, begin);
  return absl::OkStatus();
}

// Frames and audio of the same chunk of time follow each other.
absl::Status AppendVideoAndAudio(OmniItems& items, const Sequence& sequence, PieceWriter* writer) {
  const double start = writer->next();
  const int64_t begin = writer->size(), video_id = items.settings.video_id, audio_id = items.settings.audio_id;
  POSENC_ASSIGN_OR_RETURN(const int64_t audio_tokens,
                          items.TakeAudio(sequence, RunOf(sequence, begin, audio_id, video_id)));
  POSENC_ASSIGN_OR_RETURN(const std::vector<Place3> video,
                          VideoPlaces(items, sequence, RunOf(sequence, begin, video_id, audio_id), start));
  const std::vector<Place3> audio = AudioPlaces(audio_tokens, start);
  const auto positions = static_cast<int64_t>(items.settings.per_second * items.settings.chunk_seconds);
  const std::vector<size_t> video_ends = ChunkEnds(video, positions, start),
                            audio_ends = ChunkEnds(audio, positions, start);
  for (size_t n = 0; n < std::max(video_ends.size(), audio_ends.size()); ++n) {
    POSENC_RETURN_IF_ERROR(AppendChunk(video, video_ends, n, writer));
    POSENC_RETURN_IF_ERROR(AppendChunk(audio, audio_ends, n, writer));
  }
  writer->AddSpan({.kind = SpanKind::kVideoAndAudio, .grid = items.videos.next() - 1, .audio = items.next_audio - 1},
                  begin);
  return absl::OkStatus();
}

absl::Status CountSequence(Sequence& sequence, OmniItems& items) {
  const OmniSettings& settings = items.settings;
  const bool both = items.tokens.use_audio_in_video;
  POSENC_ASSIGN_OR_RETURN(OmniCounts left, CountItems(sequence, settings, both));
  const int64_t all = left.images + left.audios + (both ? 0 : left.videos);
  PieceWriter writer(sequence);
  TokenFinder finder(sequence);
  int64_t text = 0;  // first token after the last span
  for (int64_t item = 0; item < all; ++item) {
    InterruptionPoint();
    const int64_t none = sequence.size() + 1;
    const int64_t image = left.images > 0 ? finder.Find(settings.image_id, writer.size()) : none;
    const int64_t video = left.videos > 0 ? finder.Find(settings.video_id, writer.size()) : none;
    const int64_t audio = left.audios > 0 ? finder.Find(settings.audio_id, writer.size()) : none;
    const int64_t first = std::min({image, video, audio});
    const bool is_both = both && first == video && first != audio && first != image;
    // Text, and one start token; two of the same position before a video with audio.
    POSENC_RETURN_IF_ERROR(writer.AppendText(first - writer.size() - (is_both ? 2 : 1)));
    const double marker = writer.next();
    const int64_t begin = writer.size();
    for (int n = 0; n < (is_both ? 2 : 1); ++n) POSENC_RETURN_IF_ERROR(writer.AppendCount(1, marker));
    writer.AddSpan({.kind = SpanKind::kText}, begin);
    POSENC_RETURN_IF_ERROR(CheckText(sequence, settings, text, writer.size()));
    if (first == audio) {
      POSENC_RETURN_IF_ERROR(AppendAudio(items, sequence, &writer));
    } else if (first == image) {
      POSENC_RETURN_IF_ERROR(AppendImage(items, sequence, &writer));
    } else if (is_both) {
      POSENC_RETURN_IF_ERROR(AppendVideoAndAudio(items, sequence, &writer));
    } else {
      const int64_t span = writer.size();
      POSENC_ASSIGN_OR_RETURN(const std::vector<Place3> places,
                              VideoPlaces(items, sequence, RunOf(sequence, span, settings.video_id), writer.next()));
      POSENC_RETURN_IF_ERROR(writer.Append(places));
      writer.AddSpan({.kind = SpanKind::kVideo, .grid = items.videos.next() - 1}, span);
    }
    left.audios -= first == audio || is_both ? 1 : 0;
    left.images -= first == image && first != audio ? 1 : 0;
    left.videos -= first == video && first != audio && first != image ? 1 : 0;
    const double after = writer.next();
    const int64_t closing = text = writer.size();
    for (int n = 0; n < (is_both ? 2 : 1); ++n) POSENC_RETURN_IF_ERROR(writer.AppendCount(1, after));
    writer.AddSpan({.kind = SpanKind::kText}, closing);
    POSENC_RETURN_IF_ERROR(CheckLargest(writer, settings));
  }
  POSENC_RETURN_IF_ERROR(CheckText(sequence, settings, text, sequence.size()));
  return writer.AppendText(sequence.size() - writer.size());
}

absl::Status CountAll(const ConfigObject& model, bool talker, const TokenDescription& tokens,
                      CountedPositions* result) {
  POSENC_ASSIGN_OR_RETURN(const OmniSettings settings, OmniSettingsOf(model, {talker, 151647}));
  OmniItems items(tokens, settings, AudioTokens);
  if (!tokens.image_grid_thw && !tokens.video_grid_thw) return CountWithoutGrids(items, false, result);
  if (!tokens.has_input_ids) return Requires("input_ids", "the model finds images, videos and audio by them");
  POSENC_RETURN_IF_ERROR(
      ForEachSequence(tokens, result, [&](Sequence& sequence) { return CountSequence(sequence, items); }));
  return items.CheckAllTaken();
}

}  // namespace

absl::Status CountQwen25Omni(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result) {
  return CountAll(model, false, tokens, result);
}

absl::Status CountQwen25Talker(const ConfigObject& model, const TokenDescription& tokens, CountedPositions* result) {
  return CountAll(model, true, tokens, result);
}

}  // namespace posenc
