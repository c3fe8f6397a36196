#include "posenc/mapping/token_description.h"

#include <fmt/format.h>

#include <algorithm>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/rotary/positions.h"

namespace posenc::wire {
namespace {

// Integers of a tensor of any shape with this number of values.
std::vector<int64_t> Whole(const std::vector<double>& values) {
  std::vector<int64_t> integers;
  integers.reserve(values.size());
  for (const double value : values) {
    InterruptionPointOfStep(static_cast<int64_t>(integers.size()));
    integers.push_back(static_cast<int64_t>(value));
  }
  return integers;
}

absl::Status NotInRange(std::string_view field, size_t n, int64_t value, std::string_view limit) {
  return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", field, n), fmt::format("{}", value), limit);
}

// Rows of three, or of two, which get t = 1.
absl::StatusOr<std::vector<PatchGrid>> ReadGrids(const Reader& reader, std::string_view field, const v1::Tensor& tensor,
                                                 int64_t columns) {
  POSENC_ASSIGN_OR_RETURN(const Matrix<double> matrix, reader.Integers(field, tensor));
  if (matrix.shared || matrix.columns != columns) {
    return InvalidArgument("MISMATCH", fmt::format("{}.shape", field),
                           ToString({tensor.shape().begin(), tensor.shape().end()}),
                           fmt::format("must be [n, {}]", columns));
  }
  std::vector<PatchGrid> grids;
  for (int64_t n = 0; n < matrix.rows; ++n) {
    InterruptionPointOfStep(n);
    const double* row = matrix.row(n);
    for (int64_t k = 0; k < columns; ++k) {
      if (row[k] >= 1 && row[k] <= static_cast<double>(reader.limits.max_dimension)) continue;
      return NotInRange(field, n * columns + k, static_cast<int64_t>(row[k]),
                        fmt::format("must be 1 .. {} (max_dimension)", reader.limits.max_dimension));
    }
    const auto at = [row](int64_t k) { return static_cast<int64_t>(row[k]); };
    grids.push_back(columns == 3 ? PatchGrid{at(0), at(1), at(2)} : PatchGrid{1, at(0), at(1)});
  }
  return grids;
}

// Values of a tensor [n] or [n, 1].
absl::StatusOr<std::vector<double>> ReadColumn(const Reader& reader, std::string_view field, const v1::Tensor& tensor) {
  POSENC_ASSIGN_OR_RETURN(const Matrix<double> matrix, reader.Numbers(field, tensor));
  if (matrix.shared || matrix.columns == 1) return matrix.values;
  return InvalidArgument("MISMATCH", fmt::format("{}.shape", field),
                         ToString({tensor.shape().begin(), tensor.shape().end()}), "must be [n] or [n, 1]");
}

absl::StatusOr<std::vector<int64_t>> ReadCounts(const Reader& reader, std::string_view field,
                                                const v1::Tensor& tensor) {
  POSENC_RETURN_IF_ERROR(reader.Integers(field, tensor).status());
  POSENC_ASSIGN_OR_RETURN(const std::vector<double> values, ReadColumn(reader, field, tensor));
  return Whole(values);
}

absl::StatusOr<Matrix<double>> ReadAttentionMask(const Reader& reader, const v1::Tensor& tensor) {
  constexpr std::string_view kMask = "attention_mask";
  if (tensor.dtype() == v1::DATA_TYPE_BOOL) {
    POSENC_ASSIGN_OR_RETURN(const Matrix<uint8_t> flags, reader.Flags(kMask, tensor));
    return Matrix<double>{{flags.values.begin(), flags.values.end()}, flags.rows, flags.columns, flags.shared};
  }
  POSENC_ASSIGN_OR_RETURN(Matrix<double> mask, reader.Integers(kMask, tensor));
  const auto bad = std::find_if(mask.values.begin(), mask.values.end(), [](double v) { return v != 0 && v != 1; });
  if (bad == mask.values.end()) return mask;
  return NotInRange(kMask, bad - mask.values.begin(), static_cast<int64_t>(*bad), "must be 0 or 1");
}

// B and S, from the first tensor that gives them.
class TokenShape {
 public:
  TokenShape(const v1::TokenDescription& message, TokenDescription* tokens) : tokens_(*tokens) {
    if (message.has_sequences()) sequences_ = message.sequences();
    if (message.has_length()) length_ = message.length();
  }

  // The field has these sequences, of `before` tokens more than are described.
  absl::Status Take(std::string_view field, const Matrix<double>& matrix, int64_t before = 0) {
    const int64_t length = matrix.columns - before;
    if (length < 0 || sequences_.value_or(matrix.rows) != matrix.rows || length_.value_or(length) != length) {
      return InvalidArgument(
          "MISMATCH", fmt::format("{}.shape", field), Of(matrix.rows, matrix.columns),
          fmt::format("must be {}, the sequences and tokens that {} gives",
                      Of(sequences_.value_or(matrix.rows), length_.value_or(std::max<int64_t>(length, 0)) + before),
                      first_.empty() ? "the description" : first_));
    }
    if (first_.empty()) first_ = field;
    sequences_ = matrix.rows;
    length_ = length;
    return absl::OkStatus();
  }

  // Takes the number of packed tokens, if no other field gives it.
  void TakePacked(int64_t tokens) { length_ = length_.value_or(tokens); }

  absl::Status Finish(const Limits& limits) {
    if (!length_)
      return InvalidArgument("MISSING", "length", "", "must be given: no tensor says how many tokens there are");
    if (sequences_.value_or(1) > limits.max_sequences) {
      return TooLarge(first_.empty() ? "sequences" : fmt::format("{}.shape", first_),
                      fmt::format("{} sequences", *sequences_),
                      fmt::format("must be at most {} (max_sequences)", limits.max_sequences));
    }
    POSENC_RETURN_IF_ERROR(CheckCount("length", *length_, limits));
    tokens_.sequences = sequences_.value_or(1);
    tokens_.length = *length_;
    // Both are below 2^31, so that their product does not overflow. Zeros lift no limit.
    const int64_t tokens = std::max<int64_t>(tokens_.sequences, 1) * std::max<int64_t>(tokens_.length, 1);
    const int64_t most = limits.max_output_bytes / static_cast<int64_t>(sizeof(int64_t));
    if (tokens <= most) return absl::OkStatus();
    return TooLarge("length", fmt::format("{} tokens of {} sequences", tokens_.length, tokens_.sequences),
                    fmt::format("must be at most {} tokens in all (max_output_bytes)", most));
  }

 private:
  static std::string Of(int64_t rows, int64_t columns) { return ToString({rows, columns}); }

  TokenDescription& tokens_;
  std::optional<int64_t> sequences_, length_;
  std::string first_;
};

absl::Status ReadArrays(const Reader& reader, const v1::TokenDescription& message, TokenDescription* tokens) {
  POSENC_RETURN_IF_ERROR(CheckCount("sequences", message.sequences(), reader.limits));
  POSENC_RETURN_IF_ERROR(CheckCount("length", message.length(), reader.limits));
  TokenShape shape(message, tokens);
  if (message.has_mm_token_type_ids()) {
    POSENC_ASSIGN_OR_RETURN(const Matrix<double> kinds,
                            reader.Integers("mm_token_type_ids", message.mm_token_type_ids()));
    POSENC_RETURN_IF_ERROR(shape.Take("mm_token_type_ids", kinds));
    for (const double kind : kinds.values) {
      InterruptionPointOfStep(static_cast<int64_t>(tokens->kinds.size()));
      if (kind < 0 || kind > 3) {
        return NotInRange("mm_token_type_ids", tokens->kinds.size(), static_cast<int64_t>(kind),
                          "must be 0 (text), 1 (image), 2 (video) or 3 (audio)");
      }
      tokens->kinds.push_back(static_cast<uint8_t>(kind));
    }
    tokens->has_kinds = true;
  }
  if (message.has_input_ids()) {
    POSENC_ASSIGN_OR_RETURN(const Matrix<double> ids, reader.Integers("input_ids", message.input_ids()));
    POSENC_RETURN_IF_ERROR(shape.Take("input_ids", ids));
    tokens->input_ids = Whole(ids.values);
    tokens->has_input_ids = true;
  }
  if (message.has_attention_mask()) {
    POSENC_ASSIGN_OR_RETURN(const Matrix<double> mask, ReadAttentionMask(reader, message.attention_mask()));
    const int64_t cached = tokens->cache_length.value_or(0);
    POSENC_RETURN_IF_ERROR(shape.Take("attention_mask", mask, cached));
    for (int64_t b = 0; b < mask.rows; ++b) {
      InterruptionPoint();
      const double* row = mask.values.data() + b * mask.columns;
      tokens->cache_mask.insert(tokens->cache_mask.end(), row, row + cached);
      tokens->mask.insert(tokens->mask.end(), row + cached, row + mask.columns);
    }
    tokens->has_mask = true;
  }
  if (!tokens->bounds.empty()) {
    POSENC_RETURN_IF_ERROR(
        CheckCount(fmt::format("cu_seqlens[{}]", tokens->bounds.size() - 1), tokens->bounds.back(), reader.limits));
    shape.TakePacked(tokens->bounds.back());
  }
  return shape.Finish(reader.limits);
}

absl::Status ReadItems(const Reader& reader, const v1::TokenDescription& message, TokenDescription* tokens) {
  if (message.has_image_grid_thw()) {
    POSENC_ASSIGN_OR_RETURN(tokens->image_grid_thw, ReadGrids(reader, "image_grid_thw", message.image_grid_thw(), 3));
  }
  if (message.has_video_grid_thw()) {
    POSENC_ASSIGN_OR_RETURN(tokens->video_grid_thw, ReadGrids(reader, "video_grid_thw", message.video_grid_thw(), 3));
  }
  if (message.has_target_sizes()) {
    POSENC_ASSIGN_OR_RETURN(tokens->target_sizes, ReadGrids(reader, "target_sizes", message.target_sizes(), 2));
  }
  if (message.has_target_sizes_videos()) {
    POSENC_ASSIGN_OR_RETURN(tokens->target_sizes_videos,
                            ReadGrids(reader, "target_sizes_videos", message.target_sizes_videos(), 2));
  }
  if (message.has_second_per_grid_ts()) {
    constexpr std::string_view kSeconds = "second_per_grid_ts";
    const v1::Tensor& tensor = message.second_per_grid_ts();
    POSENC_ASSIGN_OR_RETURN(tokens->second_per_grid_ts, ReadColumn(reader, kSeconds, tensor));
    tokens->seconds_are_float32 = tensor.dtype() == v1::DATA_TYPE_FP32;
    for (size_t n = 0; n < tokens->second_per_grid_ts->size(); ++n) {
      const double seconds = (*tokens->second_per_grid_ts)[n];
      constexpr double kMostSeconds = 1e6;
      if (seconds >= 0 && seconds <= kMostSeconds) continue;  // not NaN
      return InvalidArgument("OUT_OF_RANGE", fmt::format("{}[{}]", kSeconds, n), fmt::format("{}", seconds),
                             fmt::format("must be 0 .. {}", kMostSeconds));
    }
  }
  if (message.has_audio_seqlens()) {
    POSENC_ASSIGN_OR_RETURN(tokens->audio_seqlens, ReadCounts(reader, "audio_seqlens", message.audio_seqlens()));
  }
  if (message.has_images_per_sample()) {
    POSENC_ASSIGN_OR_RETURN(tokens->images_per_sample,
                            ReadCounts(reader, "images_per_sample", message.images_per_sample()));
  }
  tokens->use_audio_in_video = message.use_audio_in_video();
  tokens->downsample_mode = message.downsample_mode();
  if (!tokens->downsample_mode.empty() && tokens->downsample_mode != "4x" && tokens->downsample_mode != "16x") {
    return InvalidArgument("UNKNOWN_VALUE", "downsample_mode", tokens->downsample_mode, "must be \"4x\" or \"16x\"");
  }
  return absl::OkStatus();
}

absl::Status ReadCache(const Reader& reader, const v1::TokenDescription& message, TokenDescription* tokens) {
  if (message.has_cache_length()) {
    POSENC_RETURN_IF_ERROR(CheckCount("cache_length", message.cache_length(), reader.limits));
    tokens->cache_length = message.cache_length();
  }
  if (message.has_rope_deltas()) {
    POSENC_ASSIGN_OR_RETURN(tokens->rope_deltas, ReadColumn(reader, "rope_deltas", message.rope_deltas()));
  }
  if (!message.has_cache_window()) return absl::OkStatus();
  const v1::CacheWindow& window = message.cache_window();
  POSENC_RETURN_IF_ERROR(CheckCount("cache_window.sinks", window.sinks(), reader.limits));
  if (window.size() <= window.sinks() || window.size() > reader.limits.max_dimension) {
    return InvalidArgument("OUT_OF_RANGE", "cache_window.size", fmt::format("{}", window.size()),
                           fmt::format("must be more than sinks, {}, and at most {} (max_dimension)", window.sinks(),
                                       reader.limits.max_dimension));
  }
  tokens->cache_window = CacheWindow{window.size(), window.sinks(), window.renumbers()};
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LatentDescription> ReadLatents(const Reader& reader, const v1::LatentDescription& message) {
  LatentDescription latents;
  if (!message.has_grid_thw())
    return InvalidArgument("MISSING", "grid_thw", "", "must be given: the sizes of the images");
  POSENC_ASSIGN_OR_RETURN(latents.grids, ReadGrids(reader, "grid_thw", message.grid_thw(), 3));
  POSENC_RETURN_IF_ERROR(CheckCount("text_length", message.text_length(), reader.limits));
  latents.text_length = message.text_length();
  for (const double scale : message.rope_interpolation_scale()) {
    if (!(scale > 0 && scale <= 1e6)) {
      return InvalidArgument("OUT_OF_RANGE", "rope_interpolation_scale", fmt::format("{}", scale),
                             "must be above 0 and at most 1e6");
    }
    latents.rope_interpolation_scale.push_back(scale);
  }
  return latents;
}

absl::StatusOr<TokenDescription> ReadTokens(const Reader& reader, const v1::TokenDescription& message) {
  const LargeBlocksMayBeRefused scope;
  TokenDescription tokens;
  POSENC_RETURN_IF_ERROR(ReadCache(reader, message, &tokens));
  if (message.has_cu_seqlens()) {
    POSENC_ASSIGN_OR_RETURN(tokens.bounds, ReadBounds(reader, message.cu_seqlens()));
    POSENC_RETURN_IF_ERROR(CheckSequences(static_cast<int64_t>(tokens.bounds.size()) - 1, reader.limits));
  }
  POSENC_RETURN_IF_ERROR(ReadArrays(reader, message, &tokens));
  POSENC_RETURN_IF_ERROR(ReadItems(reader, message, &tokens));
  if (!message.has_cu_seqlens()) return tokens;
  if (tokens.sequences != 1 || tokens.cache_length || tokens.has_mask) {
    return InvalidArgument("CONFLICT", "cu_seqlens", "",
                           "must be absent with several rows, with attention_mask and with cache_length");
  }
  POSENC_RETURN_IF_ERROR(CheckSequenceBounds("cu_seqlens", tokens.bounds, tokens.length));
  return tokens;
}

}  // namespace posenc::wire
