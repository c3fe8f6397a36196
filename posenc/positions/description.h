// A caller describes its tokens, and a model's class computes their position ids from the description.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace posenc {

// Patches of an image or a video before merging; rows and columns of a crop have t = 1.
struct PatchGrid {
  int64_t t, h, w;
};

enum class TokenKind : uint8_t { kText = 0, kImage = 1, kVideo = 2, kAudio = 3 };

// Cache that holds the first `sinks` tokens and the latest ones.
struct CacheWindow {
  int64_t size = 0;
  int64_t sinks = 0;
  bool renumbers = false;  // a token's position is its index in the cache
};

// Fields are those of TokenDescription in proto/posenc/v1/positions.proto. Arrays per token are [B, S], row-major.
struct TokenDescription {
  int64_t sequences = 1;        // B
  int64_t length = 0;           // S; packed: all tokens
  std::vector<int64_t> bounds;  // cu_seqlens; empty: not packed
  bool has_kinds = false;
  std::vector<uint8_t> kinds;  // TokenKind; empty: all text
  bool has_input_ids = false;
  std::vector<int64_t> input_ids;
  bool has_mask = false;
  std::vector<uint8_t> mask;        // 0 or 1, of the tokens described here; empty: no padding
  std::vector<uint8_t> cache_mask;  // [B, cache_length]; empty: no padding in the cache
  std::optional<std::vector<PatchGrid>> image_grid_thw, video_grid_thw, target_sizes, target_sizes_videos;
  std::optional<std::vector<double>> second_per_grid_ts;
  bool seconds_are_float32 = false;  // else Python numbers
  std::optional<std::vector<int64_t>> audio_seqlens, images_per_sample;
  bool use_audio_in_video = false;
  std::string downsample_mode;
  std::optional<int64_t> cache_length;
  std::optional<std::vector<double>> rope_deltas;
  std::optional<CacheWindow> cache_window;

  int64_t tokens() const { return sequences * length; }
  // Number of sequences that are counted each on its own.
  int64_t counted() const { return bounds.empty() ? sequences : static_cast<int64_t>(bounds.size()) - 1; }
  // Sequence n holds tokens begin(n) .. begin(n+1)-1 of the arrays.
  int64_t begin(int64_t n) const { return bounds.empty() ? n * length : bounds[n]; }
};

enum class SpanKind { kText, kImage, kVideo, kAudio, kVideoAndAudio };

// Tokens begin .. end-1 of a sequence.
struct PositionSpan {
  int64_t sequence = 0;
  SpanKind kind = SpanKind::kText;
  int64_t begin = 0, end = 0;
  std::optional<int64_t> grid, frame, audio;
};

struct CountedPositions {
  std::vector<std::string> axes;  // names
  int64_t tokens = 0;             // of all sequences
  std::vector<double> ids;        // [axes, tokens]
  bool fractions = false;         // the class computes in float32
  std::vector<double> deltas;     // one per sequence
  std::vector<PositionSpan> spans;
  std::vector<double> decode_ids;  // [axes, B, decode_count]
  int64_t decode_count = 0;
  std::vector<double> key_ids;  // [axes, B, key_count]
  int64_t key_count = 0;

  int64_t values_left = 0;                 // values that the answer may still get
  std::string_view size_field = "length";  // the field that errors of Reserve() name

  // Counts values that are about to be added. RESOURCE_EXHAUSTED if the answer would be too large.
  absl::Status Reserve(int64_t values);
  double& id(int64_t axis, int64_t token) { return ids[axis * tokens + token]; }
};

}  // namespace posenc
