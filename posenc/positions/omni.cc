#include "posenc/positions/omni.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

absl::StatusOr<int64_t> IdOf(const ConfigObject& model, std::initializer_list<std::string_view> names,
                             std::optional<int64_t> otherwise) {
  POSENC_ASSIGN_OR_RETURN(const auto id, model.Integer(names));
  if (id) return *id;
  if (otherwise) return *otherwise;
  return InvalidArgument("MISSING", model.PathOf(names), "", "must be given: the class reads it");
}

// A number of 0 .. 2^53.
absl::StatusOr<double> NumberOf(const ConfigObject& model, std::string_view field, double otherwise) {
  POSENC_ASSIGN_OR_RETURN(const auto given, model.Number({field}));
  const double number = given.value_or(otherwise);
  if (number >= 0 && number <= kLargestPosition) return number;  // not NaN
  return InvalidArgument("OUT_OF_RANGE", model.Path(field), fmt::format("{}", number), "must be 0 .. 2^53");
}

}  // namespace

absl::StatusOr<OmniSettings> OmniSettingsOf(const ConfigObject& model, const OmniClass& of) {
  OmniSettings settings;
  settings.talker = of.talker;
  POSENC_ASSIGN_OR_RETURN(settings.image_id, IdOf(model, {"image_token_id", "image_token_index"}, 151655));
  POSENC_ASSIGN_OR_RETURN(settings.video_id, IdOf(model, {"video_token_id", "video_token_index"}, 151656));
  POSENC_ASSIGN_OR_RETURN(settings.audio_id, IdOf(model, {"audio_token_id", "audio_token_index"}, 151646));
  POSENC_ASSIGN_OR_RETURN(settings.vision_start_id, IdOf(model, {"vision_start_token_id"},
                                                         of.talker ? std::optional<int64_t>(151652) : std::nullopt));
  POSENC_ASSIGN_OR_RETURN(settings.audio_start_id, IdOf(model, {"audio_start_token_id"}, of.audio_start_id));
  settings.per_second_field = model.Path("position_id_per_seconds");
  POSENC_ASSIGN_OR_RETURN(settings.per_second, NumberOf(model, "position_id_per_seconds", 25));
  POSENC_ASSIGN_OR_RETURN(settings.chunk_seconds, NumberOf(model, "seconds_per_chunk", 2));
  if (settings.per_second * settings.chunk_seconds > kLargestPosition) {
    return InvalidArgument("OUT_OF_RANGE", model.Path("seconds_per_chunk"), fmt::format("{}", settings.chunk_seconds),
                           fmt::format("must be at most 2^53 positions: there are {} per second", settings.per_second));
  }

  settings.merge = 2;
  if (of.talker) {
    POSENC_ASSIGN_OR_RETURN(settings.merge, CountInFile(model, "spatial_merge_size", settings.merge));
  } else {
    POSENC_ASSIGN_OR_RETURN(const auto vision, model.Object("vision_config"));
    if (vision) {
      POSENC_ASSIGN_OR_RETURN(settings.merge, CountInFile(*vision, "spatial_merge_size", settings.merge));
    }
  }
  settings.audio_window = 50;
  POSENC_ASSIGN_OR_RETURN(const auto audio, model.Object("audio_config"));
  if (audio) {
    POSENC_ASSIGN_OR_RETURN(settings.audio_window, CountInFile(*audio, "n_window", settings.audio_window));
  }
  return settings;
}

absl::StatusOr<OmniCounts> CountItems(const Sequence& sequence, const OmniSettings& settings, bool audio_in_video) {
  OmniCounts counts;
  for (int64_t n = 0; n < sequence.size(); ++n) {
    InterruptionPointOfStep(n);
    counts.audios += sequence.input_id(n) == settings.audio_start_id ? 1 : 0;
    if (sequence.input_id(n) != settings.vision_start_id) continue;
    if (n + 1 == sequence.size()) {
      return InvalidArgument(
          "MISMATCH", "input_ids", fmt::format("{}", settings.vision_start_id),
          fmt::format("must not end with the start of an image or video: sequence {}", sequence.number()));
    }
    const int64_t after = sequence.input_id(n + 1);
    counts.images += after == settings.image_id ? 1 : 0;
    counts.videos += after == (audio_in_video ? settings.audio_start_id : settings.video_id) ? 1 : 0;
  }
  return counts;
}

int64_t TokenFinder::Find(int64_t id, int64_t begin) {
  const auto [entry, is_new] = found_.try_emplace(id, begin);
  int64_t& place = entry->second;
  if (!is_new && place >= begin) return place;
  for (place = begin; place < sequence_.size(); ++place) {
    InterruptionPointOfStep(place);
    if (sequence_.input_id(place) == id) return place;
  }
  place = sequence_.size() + 1;
  return place;
}

std::vector<Place3> GridPlaces(const PatchGrid& grid, const std::vector<float>& times, double start) {
  std::vector<Place3> places;
  places.reserve(Cells(grid));
  for (const float time : times) {
    for (int64_t h = 0; h < grid.h; ++h) {
      InterruptionPoint();
      for (int64_t w = 0; w < grid.w; ++w) {
        places.push_back({time + start, static_cast<double>(h) + start, static_cast<double>(w) + start});
      }
    }
  }
  return places;
}

std::vector<float> TimesOf(int64_t frames, float seconds, double per_second) {
  std::vector<float> times(frames);
  for (int64_t t = 0; t < frames; ++t) times[t] = static_cast<float>(t) * seconds * static_cast<float>(per_second);
  return times;
}

absl::Status PieceWriter::CheckRoom(int64_t count) const {
  if (count >= 0 && count <= sequence_.size() - size_) return absl::OkStatus();
  return InvalidArgument(
      "MISMATCH", "input_ids", fmt::format("{} tokens in sequence {}", sequence_.size(), sequence_.number()),
      "must have the tokens that grids and audio lengths stand for, between a start and an end token");
}

absl::Status PieceWriter::Append(const std::vector<Place3>& places) {
  POSENC_RETURN_IF_ERROR(CheckRoom(static_cast<int64_t>(places.size())));
  if (places.empty()) return absl::OkStatus();
  double largest = -1;
  for (const auto& [t, h, w] : places) {
    InterruptionPointOfStep(size_);
    sequence_.id(0, size_) = t;
    sequence_.id(1, size_) = h;
    sequence_.id(2, size_) = w;
    ++size_;
    largest = std::max({largest, t, h, w});
  }
  next_ = largest + 1;
  largest_ = std::max(largest_, largest);
  return absl::OkStatus();
}

absl::Status PieceWriter::AppendCount(int64_t count, double start) {
  POSENC_RETURN_IF_ERROR(CheckRoom(count));
  if (count == 0) return absl::OkStatus();
  sequence_.Count(size_, size_ + count, start);
  size_ += count;
  next_ = start + static_cast<double>(count);
  largest_ = std::max(largest_, next_ - 1);
  return absl::OkStatus();
}

absl::Status PieceWriter::AppendText(int64_t count) {
  const int64_t begin = size_;
  POSENC_RETURN_IF_ERROR(AppendCount(count, next_));
  AddSpan({.kind = SpanKind::kText}, begin);
  return absl::OkStatus();
}

absl::Status CheckLargest(const PieceWriter& writer, const OmniSettings& settings) {
  if (writer.largest() <= kLargestPosition) return absl::OkStatus();
  return InvalidArgument("OUT_OF_RANGE", settings.per_second_field, fmt::format("{}", settings.per_second),
                         fmt::format("must keep positions within 2^53: the largest is {}", writer.largest()));
}

OmniSpan RunOf(const Sequence& sequence, int64_t begin, int64_t id, int64_t other) {
  OmniSpan span{begin, begin, 0};
  for (; span.end < sequence.size(); ++span.end) {
    InterruptionPointOfStep(span.end);
    const int64_t token = sequence.input_id(span.end);
    if (token != id && token != other) break;
    span.count += token == id ? 1 : 0;
  }
  return span;
}

absl::Status CheckText(const Sequence& sequence, const OmniSettings& settings, int64_t begin, int64_t end) {
  for (int64_t n = begin; n < end; ++n) {
    InterruptionPointOfStep(n);
    const int64_t id = sequence.input_id(n);
    if (id != settings.image_id && id != settings.video_id && id != settings.audio_id) continue;
    return InvalidArgument(
        "MISMATCH", "input_ids", fmt::format("{}", id),
        fmt::format("must follow the start of an image, a video or an audio: the token {}", sequence.Place(n, n + 1)));
  }
  return absl::OkStatus();
}

OmniItems::OmniItems(const TokenDescription& described, const OmniSettings& of_model, AudioTokensOf of_frames)
    : tokens(described),
      settings(of_model),
      audio_tokens_of(of_frames),
      images("image_grid_thw", "image", described.image_grid_thw),
      videos("video_grid_thw", "video", described.video_grid_thw) {}

absl::StatusOr<PatchGrid> OmniItems::Take(GridQueue& queue, const Sequence& sequence, const OmniSpan& span) const {
  POSENC_ASSIGN_OR_RETURN(const PatchGrid grid, queue.TakeMerged(sequence, span.begin, span.end, 1, settings.merge));
  POSENC_RETURN_IF_ERROR(queue.CheckSpan(sequence, span.begin, span.end, Cells(grid), span.count));
  return grid;
}

absl::StatusOr<float> OmniItems::Seconds() const {
  if (!tokens.second_per_grid_ts) return Requires("second_per_grid_ts", "the model places frames by their seconds");
  POSENC_RETURN_IF_ERROR(CheckSeconds(tokens));
  return static_cast<float>((*tokens.second_per_grid_ts)[videos.next() - 1]);
}

absl::StatusOr<int64_t> OmniItems::TakeAudio(const Sequence& sequence, const OmniSpan& span) {
  if (next_audio >= audios()) {
    return InvalidArgument("MISMATCH", "audio_seqlens", fmt::format("{} values", audios()),
                           fmt::format("must have one for each audio: there is none left for that {}",
                                       sequence.Place(span.begin, span.end)));
  }
  const int64_t frames = (*tokens.audio_seqlens)[next_audio];
  const int64_t count = frames < 1 ? 0 : audio_tokens_of(frames, settings.audio_window);
  if (count < 1 || count != span.count) {
    return InvalidArgument(
        "MISMATCH", fmt::format("audio_seqlens[{}]", next_audio), fmt::format("{}", frames),
        fmt::format("must stand for as many tokens as its span has: it stands for {}, the span {} has {}", count,
                    sequence.Place(span.begin, span.end), span.count));
  }
  ++next_audio;
  return count;
}

absl::Status OmniItems::CheckAllTaken() const {
  POSENC_RETURN_IF_ERROR(images.CheckAllTaken());
  POSENC_RETURN_IF_ERROR(videos.CheckAllTaken());
  if (next_audio == audios()) return absl::OkStatus();
  return InvalidArgument("MISMATCH", "audio_seqlens", fmt::format("{} values", audios()),
                         fmt::format("must have one for each audio: the tokens have {}", next_audio));
}

namespace {

// Adds the spans of a sequence whose tokens are all counted. Audio needs audio_seqlens only to be checked.
absl::Status AddSpansWithoutGrids(OmniItems& items, Sequence& sequence) {
  const OmniSettings& settings = items.settings;
  int64_t text = 0;
  for (int64_t n = 0; items.tokens.has_input_ids && n < sequence.size();) {
    InterruptionPointOfStep(n);
    const int64_t id = sequence.input_id(n);
    if (id == settings.image_id || id == settings.video_id) {
      return Requires(id == settings.image_id ? "image_grid_thw" : "video_grid_thw",
                      fmt::format("the token {} is part of one", sequence.Place(n, n + 1)));
    }
    if (id != settings.audio_id) {
      ++n;
      continue;
    }
    const OmniSpan span = RunOf(sequence, n, id);
    PositionSpan audio{.kind = SpanKind::kAudio};
    if (items.tokens.audio_seqlens) {
      POSENC_RETURN_IF_ERROR(items.TakeAudio(sequence, span).status());
      audio.audio = items.next_audio - 1;
    }
    sequence.AddSpan({.kind = SpanKind::kText}, text, n);
    sequence.AddSpan(audio, n, span.end);
    n = text = span.end;
  }
  sequence.AddSpan({.kind = SpanKind::kText}, text, sequence.size());
  return absl::OkStatus();
}

}  // namespace

absl::Status CountWithoutGrids(OmniItems& items, bool ignores_padding, CountedPositions* result) {
  const TokenDescription& tokens = items.tokens;
  if (tokens.audio_seqlens && !tokens.has_input_ids)
    return Requires("input_ids", "the model's audios are found by them");
  const auto count = [&items](Sequence& sequence) -> absl::Status {
    sequence.Count(0, sequence.size(), 0);
    return AddSpansWithoutGrids(items, sequence);
  };
  POSENC_RETURN_IF_ERROR(ForEachSequence(tokens, result, count));
  POSENC_RETURN_IF_ERROR(items.CheckAllTaken());
  if (tokens.mask.empty()) return absl::OkStatus();
  for (int64_t b = 0; b < tokens.sequences; ++b) {
    int64_t valid = 0;
    for (int64_t token = tokens.begin(b); token < tokens.begin(b + 1); ++token) {
      InterruptionPointOfStep(token);
      valid += tokens.mask[token];
      for (int64_t axis = 0; axis < 3 && tokens.mask[token] == 0; ++axis) {
        result->id(axis, token) = ignores_padding ? 0 : 1;
      }
    }
    // With a single token, the padding has the largest position.
    const bool padded = valid < tokens.length;
    if (padded && valid < 2 && !ignores_padding) result->deltas[b] = static_cast<double>(2 - valid);
  }
  return absl::OkStatus();
}

}  // namespace posenc
