// The table of model types, and what happens before and after a type's own rule.
#include "posenc/positions/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "posenc/base/checks.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/base/tensor.h"
#include "posenc/positions/sequences.h"

namespace posenc {
namespace {

constexpr ReadFields kGridFields{.mm_token_type_ids = true, .image_grid_thw = true, .video_grid_thw = true};
constexpr ReadFields kSecondsFields{
    .mm_token_type_ids = true, .image_grid_thw = true, .video_grid_thw = true, .second_per_grid_ts = true};
constexpr ReadFields kOmniFields{.input_ids = true,
                                 .image_grid_thw = true,
                                 .video_grid_thw = true,
                                 .second_per_grid_ts = true,
                                 .audio_seqlens = true,
                                 .use_audio_in_video = true};

constexpr std::string_view kGridSentence =
    "Text has one position on all axes; an image's or video's token has its frame, row and column, and the text after "
    "it continues after the larger side.";
constexpr std::string_view kFrameSentence =
    "Text has one position on all axes; each frame of a video is an image of its own, whose tokens have row and "
    "column, and the text after it continues after the larger side.";
constexpr std::string_view kSecondsSentence =
    "Text has one position on all axes; an image's or video's token has its frame, row and column, where frames are "
    "tokens_per_second times their seconds apart, and the text after it continues after the larger side.";
constexpr std::string_view kMergedSentence =
    "Text has one position on all axes; an image's or video's token has its frame, row and column, where a video's "
    "frames are merged, and the text after it continues after the larger side.";
constexpr std::string_view kOmniSentence =
    "Text and audio have one position on all axes; an image's or video's token has its time, row and column, and what "
    "follows continues after the largest.";

PositionRule Row(std::string_view model_type, PositionRule::Count count, ReadFields reads, std::string_view sentence) {
  return {.model_type = model_type, .count = count, .reads = reads, .sentence = sentence};
}

std::vector<PositionRule> MakeRules() {
  std::vector<PositionRule> rules;
  for (const std::string_view type : {"qwen2_vl", "paddleocr_vl"}) {
    rules.push_back(Row(type, CountByGrids, kGridFields, kGridSentence));
  }
  for (const std::string_view type :
       {"cohere_compass", "cosmos3_edge", "cosmos3_omni", "glm46v", "glm4v", "glm4v_moe", "glm_ocr", "glmga", "qwen3_5",
        "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe", "qwen4_exp"}) {
    rules.push_back(Row(type, CountByFrames, kGridFields, kFrameSentence));
  }
  rules.push_back(Row("qwen2_5_vl", CountBySeconds, kSecondsFields, kSecondsSentence));
  rules.push_back(Row("ernie4_5_vl_moe", CountByMergedFrames, kGridFields, kMergedSentence));
  rules.push_back(
      Row("hy_v4_vl", CountByPaddedRows, kGridFields,
          "Text has one position on all axes; each row of an image or video ends with one more token, and each "
          "frame continues after the larger side of the last on all axes."));
  PositionRule hunyuan =
      Row("hunyuan_vl", CountHunyuanVl, {.mm_token_type_ids = true, .image_grid_thw = true},
          "All tokens are counted; an image's tokens have instead column, row and the image's number "
          "on the last three axes, and each row ends with one more token.");
  hunyuan.axes = AxesOfHunyuanVl;
  rules.push_back(hunyuan);
  PositionRule glm =
      Row("glm_image", CountGlmImage, {.input_ids = true, .image_grid_thw = true, .images_per_sample = true},
          "Text has one position on all axes; an image's token has its row and column, and what follows "
          "continues after the larger side; images that are generated have decode_ids.");
  glm.padding = 1;
  glm.has_decode_ids = true;
  rules.push_back(glm);
  rules.push_back(Row("minicpmv4_7", CountMiniCpm,
                      {.mm_token_type_ids = true, .input_ids = true, .target_sizes = true, .downsample_mode = true},
                      "Text has one position on all axes; a thumbnail and its slices lie on one canvas, with row and "
                      "column, and markers at its corners."));
  const auto add_omni = [&rules](std::string_view thinker, std::string_view talker, PositionRule::Count count,
                                 PositionRule::Count count_talker, double padding, bool fractions) {
    PositionRule rule = Row(thinker, count, kOmniFields, kOmniSentence);
    rule.padding = padding;
    rule.fractions = fractions;
    rules.push_back(rule);
    rule.model_type = talker;
    rule.count = count_talker;
    rule.delta_skips_padding = true;
    rules.push_back(rule);
  };
  add_omni("qwen2_5_omni_thinker", "qwen2_5_omni_talker", CountQwen25Omni, CountQwen25Talker, 1, false);
  add_omni("qwen3_omni_moe_thinker", "qwen3_omni_moe_talker", CountQwen3Omni, CountQwen3Talker, 0, true);
  return rules;
}

absl::Status CountTokens(const ConfigObject&, const TokenDescription& tokens, CountedPositions* result) {
  return ForEachSequence(tokens, result, [](Sequence& sequence) {
    sequence.Count(0, sequence.size(), 0);
    for (int64_t begin = 0, end; begin < sequence.size(); begin = end) {
      end = sequence.RunEnd(begin);
      sequence.AddSpan({.kind = static_cast<SpanKind>(sequence.kind(begin))}, begin, end);
    }
    return absl::OkStatus();
  });
}

// INVALID_ARGUMENT for a field that the class does not read.
absl::Status CheckRead(const PositionRule& rule, const TokenDescription& tokens) {
  const ReadFields& reads = rule.reads;
  const std::tuple<std::string_view, bool, bool> fields[] = {
      {"mm_token_type_ids", tokens.has_kinds, reads.mm_token_type_ids},
      {"input_ids", tokens.has_input_ids, reads.input_ids},
      {"image_grid_thw", tokens.image_grid_thw.has_value(), reads.image_grid_thw},
      {"video_grid_thw", tokens.video_grid_thw.has_value(), reads.video_grid_thw},
      {"second_per_grid_ts", tokens.second_per_grid_ts.has_value(), reads.second_per_grid_ts},
      {"audio_seqlens", tokens.audio_seqlens.has_value(), reads.audio_seqlens},
      {"use_audio_in_video", tokens.use_audio_in_video, reads.use_audio_in_video},
      {"images_per_sample", tokens.images_per_sample.has_value(), reads.images_per_sample},
      {"target_sizes", tokens.target_sizes.has_value(), reads.target_sizes},
      {"target_sizes_videos", tokens.target_sizes_videos.has_value(), reads.target_sizes},
      {"downsample_mode", !tokens.downsample_mode.empty(), reads.downsample_mode},
      {"cache_window", tokens.cache_window.has_value(), reads.cache_window},
  };
  for (const auto& [field, given, read] : fields) {
    if (!given || read) continue;
    return InvalidArgument("NOT_READ", field, "",
                           rule.model_type.empty()
                               ? "must be absent: the model counts tokens one by one"
                               : fmt::format("must be absent: {} does not read it", rule.model_type));
  }
  if (tokens.rope_deltas && (!tokens.cache_length || rule.model_type.empty() || rule.counts_cache)) {
    return InvalidArgument("NOT_READ", "rope_deltas", "",
                           tokens.cache_length ? "must be absent: the model counts tokens one by one"
                                               : "must be absent without cache_length");
  }
  return absl::OkStatus();
}

// OUT_OF_RANGE for a delta that no class computes.
absl::Status CheckDelta(const PositionRule& rule, const TokenDescription& tokens, int64_t number, double delta) {
  const double last = std::abs(delta) + static_cast<double>(*tokens.cache_length + tokens.length);
  const bool in_range = last <= kLargestPosition;  // not NaN
  if (in_range && (rule.fractions || delta == std::trunc(delta))) return absl::OkStatus();
  return InvalidArgument(
      "OUT_OF_RANGE", fmt::format("rope_deltas[{}]", number), fmt::format("{}", delta),
      in_range ? "must be whole: the model counts in integers" : "must be finite, and keep positions within 2^53");
}

// Text after a prefix that is in the cache.
absl::Status ContinueText(const PositionRule& rule, const TokenDescription& tokens, CountedPositions* result) {
  if (rule.has_decode_ids) {
    return InvalidArgument(
        "UNSUPPORTED", "cache_length", fmt::format("{}", *tokens.cache_length),
        fmt::format("must be absent: {} decodes at decode_ids, which the answer to its prompt has", rule.model_type));
  }
  if (std::any_of(tokens.kinds.begin(), tokens.kinds.end(), [](uint8_t kind) { return kind != 0; }) &&
      !rule.model_type.empty()) {
    return InvalidArgument("UNSUPPORTED", "mm_token_type_ids", "not only text",
                           "must be all 0 with cache_length: describe the whole sequence, with token_begin");
  }
  if (!rule.model_type.empty() && !tokens.rope_deltas) {
    return Requires("rope_deltas", "the positions after a prefix depend on it");
  }
  const int64_t cached = *tokens.cache_length;
  const auto axes = static_cast<int64_t>(result->axes.size());
  result->deltas = tokens.rope_deltas.value_or(std::vector<double>(tokens.sequences, 0));
  if (static_cast<int64_t>(result->deltas.size()) != tokens.sequences) {
    return InvalidArgument("MISMATCH", "rope_deltas", fmt::format("{} values", result->deltas.size()),
                           fmt::format("must be one for each sequence: {}", tokens.sequences));
  }
  for (int64_t b = 0; b < tokens.sequences; ++b) {
    InterruptionPointOfStep(b);
    POSENC_RETURN_IF_ERROR(CheckDelta(rule, tokens, b, result->deltas[b]));
    int64_t count = cached;
    if (!tokens.cache_mask.empty() && !rule.delta_skips_padding) {
      const auto begin = tokens.cache_mask.begin() + b * cached;
      count = std::count(begin, begin + cached, 1);
    }
    for (int64_t s = 0; s < tokens.length; ++s) {
      InterruptionPointOfStep(s);
      const int64_t token = b * tokens.length + s;
      const bool padding = !rule.delta_skips_padding && !tokens.mask.empty() && tokens.mask[token] == 0;
      const double id = (padding ? 0 : static_cast<double>(count++)) + result->deltas[b];
      for (int64_t axis = 0; axis < axes; ++axis) {
        result->id(axis, token) = rule.fractions ? static_cast<float>(id) : id;
      }
    }
    if (tokens.length > 0) result->spans.push_back({.sequence = b, .begin = 0, .end = tokens.length});
  }
  return absl::OkStatus();
}

// Positions in a cache that drops old tokens, and those of its keys.
absl::Status CountInWindow(const TokenDescription& tokens, CountedPositions* result) {
  const CacheWindow& window = *tokens.cache_window;
  if (tokens.has_mask || !tokens.bounds.empty()) {
    return InvalidArgument("CONFLICT", tokens.has_mask ? "attention_mask" : "cu_seqlens", "",
                           "must be absent with cache_window");
  }
  const int64_t cached = tokens.cache_length.value_or(0), total = cached + tokens.length;
  const int64_t kept = std::min(total, window.size), latest = window.size - window.sinks;
  if (window.renumbers && total > window.size && tokens.length > latest) {
    return InvalidArgument("OUT_OF_RANGE", "length", fmt::format("{} tokens", tokens.length),
                           fmt::format("must be at most {}, the cache's size without its sinks", latest));
  }
  POSENC_RETURN_IF_ERROR(result->Reserve(kept * tokens.sequences));
  const int64_t first = window.renumbers ? kept - tokens.length : cached;
  for (int64_t token = 0; token < tokens.tokens(); ++token) {
    InterruptionPointOfStep(token);
    result->id(0, token) = static_cast<double>(first + token % tokens.length);
  }
  result->key_count = kept;
  for (int64_t b = 0; b < tokens.sequences; ++b) {
    result->spans.push_back({.sequence = b, .begin = 0, .end = tokens.length});
    for (int64_t key = 0; key < kept; ++key) {
      InterruptionPointOfStep(key);
      const bool moved = !window.renumbers && total > window.size && key >= window.sinks;
      result->key_ids.push_back(static_cast<double>(moved ? total - (kept - key) : key));
    }
  }
  result->deltas.assign(tokens.sequences, static_cast<double>(window.renumbers ? kept - total : 0));
  return absl::OkStatus();
}

// Sorts the spans, and joins neighbours of text.
void TidySpans(std::vector<PositionSpan>* spans) {
  const auto order = [](const PositionSpan& a, const PositionSpan& b) {
    return std::tie(a.sequence, a.begin) < std::tie(b.sequence, b.begin);
  };
  std::sort(spans->begin(), spans->end(), order);
  std::vector<PositionSpan> tidy;
  for (const PositionSpan& span : *spans) {
    const bool joins = !tidy.empty() && tidy.back().sequence == span.sequence && tidy.back().end == span.begin &&
                       tidy.back().kind == SpanKind::kText && span.kind == SpanKind::kText;
    if (joins) {
      tidy.back().end = span.end;
    } else {
      tidy.push_back(span);
    }
  }
  *spans = std::move(tidy);
}

}  // namespace

const std::vector<PositionRule>& PositionRules() {
  static const std::vector<PositionRule>& rules = *new std::vector<PositionRule>(MakeRules());
  return rules;
}

const PositionRule* FindPositionRule(std::string_view model_type) {
  for (const PositionRule& rule : PositionRules()) {
    if (rule.model_type == model_type) return &rule;
  }
  return nullptr;
}

const PositionRule& PlainPositions() {
  static const PositionRule& rule = *new PositionRule{
      .model_type = "",
      .count = CountTokens,
      .reads = {.mm_token_type_ids = true, .cache_window = true},
      .sentence = "Tokens are counted one by one, without padding.",
  };
  return rule;
}

absl::StatusOr<CountedPositions> CountPositions(const PositionRule& rule, const ConfigObject& model,
                                                const TokenDescription& tokens, const Limits& limits) {
  POSENC_RETURN_IF_ERROR(CheckRead(rule, tokens));
  const LargeBlocksMayBeRefused scope;
  CountedPositions result;
  result.fractions = rule.fractions;
  result.tokens = tokens.tokens();
  if (rule.axes != nullptr) {
    POSENC_ASSIGN_OR_RETURN(result.axes, rule.axes(model));
  } else if (rule.model_type.empty() || rule.counts_cache) {
    result.axes = {"position"};
  } else {
    result.axes = {"t", "h", "w"};
  }
  result.values_left = limits.max_output_bytes / static_cast<int64_t>(sizeof(int64_t));
  POSENC_RETURN_IF_ERROR(result.Reserve(tokens.tokens() * static_cast<int64_t>(result.axes.size())));
  result.ids.assign(tokens.tokens() * result.axes.size(), rule.padding);
  if (tokens.cache_window) {
    POSENC_RETURN_IF_ERROR(CountInWindow(tokens, &result));
  } else if (tokens.cache_length && !rule.counts_cache) {
    POSENC_RETURN_IF_ERROR(ContinueText(rule, tokens, &result));
  } else {
    POSENC_RETURN_IF_ERROR(rule.count(model, tokens, &result));
    for (int64_t n = 0; rule.delta_skips_padding && n < tokens.counted() && !tokens.mask.empty(); ++n) {
      const auto begin = tokens.mask.begin();
      result.deltas[n] -= static_cast<double>(std::count(begin + tokens.begin(n), begin + tokens.begin(n + 1), 0));
    }
  }
  TidySpans(&result.spans);
  return result;
}

}  // namespace posenc
