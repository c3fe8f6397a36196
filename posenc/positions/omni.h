// Both Omni rules read these settings and items, and write a sequence piece by piece.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/model/config_json.h"
#include "posenc/positions/description.h"
#include "posenc/positions/sequences.h"

namespace posenc {

struct OmniSettings {
  int64_t image_id, video_id, audio_id, vision_start_id, audio_start_id;
  int64_t merge;
  double per_second;  // position_id_per_seconds
  std::string per_second_field;
  double chunk_seconds;  // seconds_per_chunk
  int64_t audio_window;  // audio_config.n_window
  bool talker;
};
// Which class reads the settings, and with which default of audio_start_token_id.
struct OmniClass {
  bool talker;
  int64_t audio_start_id;
};
absl::StatusOr<OmniSettings> OmniSettingsOf(const ConfigObject& model, const OmniClass& of);

// Number of items of each kind in a sequence.
struct OmniCounts {
  int64_t images = 0, videos = 0, audios = 0;
};
absl::StatusOr<OmniCounts> CountItems(const Sequence& sequence, const OmniSettings& settings, bool audio_in_video);

// Finds tokens by their ids. The sequence is searched once for each id.
class TokenFinder {
 public:
  explicit TokenFinder(const Sequence& sequence) : sequence_(sequence) {}

  // Returns the first token with this id from `begin` on; the sequence's size + 1 if there is none. `begin` must not
  // decrease from call to call.
  int64_t Find(int64_t id, int64_t begin);

 private:
  const Sequence& sequence_;
  std::map<int64_t, int64_t> found_;  // by id
};

// One id of each axis.
struct Place3 {
  double t, h, w;
};

// The frames of a grid, merged, with frame t at times[t].
std::vector<Place3> GridPlaces(const PatchGrid& grid, const std::vector<float>& times, double start);

// Seconds of each frame of a grid: t * seconds * per_second in float32.
std::vector<float> TimesOf(int64_t frames, float seconds, double per_second);

// Appends pieces to a sequence. The next piece begins after the largest id of the last one, not of all.
class PieceWriter {
 public:
  explicit PieceWriter(Sequence& sequence) : sequence_(sequence) {}

  int64_t size() const { return size_; }
  double next() const { return next_; }
  // Largest id so far.
  double largest() const { return largest_; }
  // INVALID_ARGUMENT if more tokens are described than the sequence has.
  absl::Status Append(const std::vector<Place3>& places);
  // `count` tokens with positions start, start+1, ...
  absl::Status AppendCount(int64_t count, double start);
  absl::Status AppendText(int64_t count);
  void AddSpan(PositionSpan span, int64_t begin) { sequence_.AddSpan(span, begin, size_); }

 private:
  absl::Status CheckRoom(int64_t count) const;

  Sequence& sequence_;
  int64_t size_ = 0;
  double next_ = 0, largest_ = 0;
};

// OUT_OF_RANGE unless all ids so far are exact.
absl::Status CheckLargest(const PieceWriter& writer, const OmniSettings& settings);

// Tokens begin .. end-1 are a run of an item's tokens, or of those of a video and its audio, `count` of the item
// itself.
struct OmniSpan {
  int64_t begin, end, count;
};
// The run of `id` and `other` that begins at token `begin`; `count` is that of `id`.
OmniSpan RunOf(const Sequence& sequence, int64_t begin, int64_t id, int64_t other);
inline OmniSpan RunOf(const Sequence& sequence, int64_t begin, int64_t id) { return RunOf(sequence, begin, id, id); }

// INVALID_ARGUMENT if one of the tokens, which are counted as text, is an image's, a video's or an audio's.
absl::Status CheckText(const Sequence& sequence, const OmniSettings& settings, int64_t begin, int64_t end);

// Maps the feature frames of an audio to its number of tokens.
using AudioTokensOf = int64_t (*)(int64_t frames, int64_t window);

// Grids and audios of a whole batch, taken in order.
struct OmniItems {
  OmniItems(const TokenDescription& tokens, const OmniSettings& settings, AudioTokensOf audio_tokens_of);

  // Takes the next merged grid of `images` or `videos`. INVALID_ARGUMENT unless it stands for the tokens of the span.
  absl::StatusOr<PatchGrid> Take(GridQueue& queue, const Sequence& sequence, const OmniSpan& span) const;
  // Seconds per grid of the video that was taken last.
  absl::StatusOr<float> Seconds() const;
  // Tokens of the next audio. INVALID_ARGUMENT unless they are those of the span.
  absl::StatusOr<int64_t> TakeAudio(const Sequence& sequence, const OmniSpan& span);
  absl::Status CheckAllTaken() const;

  const TokenDescription& tokens;
  const OmniSettings& settings;
  const AudioTokensOf audio_tokens_of;
  GridQueue images, videos;
  int64_t next_audio = 0;

 private:
  // Number of audios that the description has.
  int64_t audios() const { return tokens.audio_seqlens ? static_cast<int64_t>(tokens.audio_seqlens->size()) : 0; }
};

// Without grids all tokens are counted. Padding has position 1, which the delta takes part in. `ignores_padding`: it
// has position 0, and the delta is 0. `items` has no grids.
absl::Status CountWithoutGrids(OmniItems& items, bool ignores_padding, CountedPositions* result);

// Division that rounds down.
inline int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

}  // namespace posenc
