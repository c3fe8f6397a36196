#include "posenc/positions/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

// Ids of a hypothesis, [axes, tokens] like the expected ones.
using Ids = std::vector<double>;

class Comparison {
 public:
  Comparison(const TokenDescription& tokens, const CountedPositions& expected, const TokenChunk& chunk,
             const GivenPositionIds& given)
      : tokens_(tokens), expected_(expected), chunk_(chunk), given_(given) {}

  int64_t axes() const { return static_cast<int64_t>(expected_.axes.size()); }

  // Calls visit(token, axis, given id) for all ids that are no padding, until it returns false.
  template <typename Visit>
  bool All(const Visit& visit) const {
    const int64_t width = chunk_.end - chunk_.begin;
    for (int64_t axis = 0; axis < axes(); ++axis) {
      for (int64_t row = 0; row < tokens_.sequences; ++row) {
        for (int64_t n = 0; n < width; ++n) {
          InterruptionPointOfStep(n);
          const int64_t token = row * tokens_.length + chunk_.begin + n;
          if (!tokens_.mask.empty() && tokens_.mask[token] == 0) continue;
          const int64_t given_axis = given_.axes == 1 ? 0 : axis;
          if (!visit(token, axis, given_.ids[(given_axis * tokens_.sequences + row) * width + n])) return false;
        }
      }
    }
    return true;
  }

  // True if the given ids are those of the hypothesis.
  bool Is(const Ids& ids) const {
    return All([&](int64_t token, int64_t axis, double id) { return id == ids[axis * expected_.tokens + token]; });
  }

  double Expected(int64_t token, int64_t axis) const { return expected_.ids[axis * expected_.tokens + token]; }

 private:
  const TokenDescription& tokens_;
  const CountedPositions& expected_;
  const TokenChunk& chunk_;
  const GivenPositionIds& given_;
};

// Tokens of the cache before the n-th sequence, with or without padding.
int64_t CachedBefore(const TokenDescription& tokens, int64_t n, bool padding_counts) {
  const int64_t cached = tokens.cache_length.value_or(0);
  if (padding_counts || tokens.cache_mask.empty()) return cached;
  const auto begin = tokens.cache_mask.begin() + n * cached;
  return std::count(begin, begin + cached, uint8_t{1});
}

// Index of each token in its sequence and its cache, with or without padding, on all axes.
Ids Counters(const TokenDescription& tokens, int64_t axes, bool padding_counts) {
  Ids ids(axes * tokens.tokens());
  for (int64_t n = 0; n < tokens.counted(); ++n) {
    auto next = static_cast<double>(CachedBefore(tokens, n, padding_counts));
    for (int64_t token = tokens.begin(n); token < tokens.begin(n + 1); ++token) {
      InterruptionPointOfStep(token);
      const bool padding = !tokens.mask.empty() && tokens.mask[token] == 0;
      for (int64_t axis = 0; axis < axes; ++axis) ids[axis * tokens.tokens() + token] = next;
      if (!padding || padding_counts) ++next;
    }
  }
  return ids;
}

// The expected ids and the padding before each token.
Ids WithPadding(const TokenDescription& tokens, const CountedPositions& expected) {
  const Ids with = Counters(tokens, 1, true), without = Counters(tokens, 1, false);
  Ids ids = expected.ids;
  for (size_t n = 0; n < ids.size(); ++n) ids[n] += with[n % with.size()] - without[n % with.size()];
  return ids;
}

Ids Exchanged(const CountedPositions& expected, int64_t a, int64_t b) {
  Ids ids = expected.ids;
  std::swap_ranges(ids.begin() + a * expected.tokens, ids.begin() + (a + 1) * expected.tokens,
                   ids.begin() + b * expected.tokens);
  return ids;
}

// Moves the ids of each span by move(span, its first token in the arrays).
template <typename Move>
Ids Moved(const TokenDescription& tokens, const CountedPositions& expected, const Move& move) {
  Ids ids = expected.ids;
  for (const PositionSpan& span : expected.spans) {
    const int64_t first = tokens.begin(span.sequence) + span.begin;
    const double by = move(span, first);
    for (size_t axis = 0; axis < expected.axes.size(); ++axis) {
      for (int64_t token = first; token < tokens.begin(span.sequence) + span.end; ++token) {
        InterruptionPointOfStep(token);
        ids[static_cast<int64_t>(axis) * expected.tokens + token] += by;
      }
    }
  }
  return ids;
}

// Descriptions whose frames are placed without regard to their seconds.
std::vector<CountedPositions> WithoutSeconds(const PositionRule& rule, const ConfigObject& model,
                                             const TokenDescription& tokens, const Limits& limits) {
  std::vector<CountedPositions> all;
  const auto add = [&](const PositionRule& other, const TokenDescription& changed) {
    auto counted = CountPositions(other, model, changed, limits);
    if (counted.ok()) all.push_back(*std::move(counted));
  };
  if (!tokens.video_grid_thw || !rule.reads.second_per_grid_ts || tokens.cache_length) return all;
  TokenDescription changed = tokens;
  changed.second_per_grid_ts.reset();
  if (rule.count == CountBySeconds) {
    add(rule, changed);
    add(*FindPositionRule("qwen2_vl"), changed);
  } else {
    changed.second_per_grid_ts.emplace(tokens.video_grid_thw->size(), 1.0);
    add(rule, changed);
  }
  return all;
}

// Ids if only the first images and videos of each kind were placed, with their number. For classes that read
// mm_token_type_ids.
std::vector<std::pair<int64_t, Ids>> WithTextFrom(const PositionRule& rule, const ConfigObject& model,
                                                  const TokenDescription& tokens, const CountedPositions& expected,
                                                  const Limits& limits) {
  constexpr int64_t kMostItems = 16;
  std::vector<std::pair<int64_t, Ids>> all;
  const bool by_kinds = rule.reads.mm_token_type_ids && rule.reads.image_grid_thw && !tokens.cache_length;
  for (int64_t items = 1; by_kinds && items <= kMostItems; ++items) {
    TokenDescription changed = tokens;
    bool any = false;
    for (const PositionSpan& span : expected.spans) {
      if (!span.grid || *span.grid < items) continue;
      const int64_t first = tokens.begin(span.sequence);
      std::fill(changed.kinds.begin() + first + span.begin, changed.kinds.begin() + first + span.end, uint8_t{0});
      any = true;
    }
    if (!any) break;
    for (auto* grids : {&changed.image_grid_thw, &changed.video_grid_thw}) {
      if (*grids && static_cast<int64_t>((*grids)->size()) > items) (*grids)->resize(items);
    }
    if (changed.second_per_grid_ts && static_cast<int64_t>(changed.second_per_grid_ts->size()) > items) {
      changed.second_per_grid_ts->resize(items);
    }
    auto counted = CountPositions(rule, model, changed, limits);
    if (counted.ok()) all.emplace_back(items, std::move(counted->ids));
  }
  return all;
}

// "all positions are +1 off", or from which token on; empty if no single number explains the difference.
std::string OffsetSentence(const TokenDescription& tokens, const Comparison& comparison) {
  std::vector<std::optional<double>> off(tokens.tokens());
  const bool same_on_axes = comparison.All([&](int64_t token, int64_t axis, double id) {
    const double by = id - comparison.Expected(token, axis);
    if (!off[token]) off[token] = by;
    return *off[token] == by;
  });
  if (!same_on_axes) return "";
  std::optional<double> number;
  int64_t first = -1, seen = 0;
  for (int64_t n = 0; n < tokens.counted(); ++n) {
    bool begun = false;
    for (int64_t token = tokens.begin(n); token < tokens.begin(n + 1); ++token) {
      if (!off[token]) continue;
      if (!begun && *off[token] == 0) {
        ++seen;
        continue;
      }
      begun = true;
      if (first < 0) first = token;
      if (!number) number = *off[token];
      if (*off[token] != *number) return "";
    }
  }
  if (!number) return "";
  if (seen == 0) return fmt::format("all positions are {:+} off", *number);
  return fmt::format("from token {} of sequence {} on, positions are {:+} off", first % tokens.length,
                     first / tokens.length, *number);
}

struct Finding {
  PositionFault fault;
  std::string sentence;
};

Finding Explain(const PositionRule& rule, const ConfigObject& model, const TokenDescription& tokens,
                const CountedPositions& expected, const Comparison& comparison, const Limits& limits) {
  const int64_t axes = comparison.axes();
  const bool plain = rule.model_type.empty();  // counting is what the model does
  if (!tokens.mask.empty() && comparison.Is(WithPadding(tokens, expected))) {
    return {PositionFault::kPaddingCounted, "padding has positions of its own: tokens must be counted without it"};
  }
  if (!plain && comparison.Is(Counters(tokens, axes, false))) {
    return {PositionFault::kCounters,
            "all axes count tokens one by one: images and videos have positions by frame, row and column"};
  }
  if (!plain && comparison.Is(Counters(tokens, axes, true))) {
    return {PositionFault::kPaddingCounted, "all axes count tokens one by one, padding included"};
  }
  for (int64_t a = 0; a < axes; ++a) {
    for (int64_t b = a + 1; b < axes; ++b) {
      if (!comparison.Is(Exchanged(expected, a, b))) continue;
      return {PositionFault::kAxesExchanged,
              fmt::format("axes {} and {} are exchanged", expected.axes[a], expected.axes[b])};
    }
  }
  for (const CountedPositions& other : WithoutSeconds(rule, model, tokens, limits)) {
    if (!comparison.Is(other.ids)) continue;
    return {PositionFault::kSecondsIgnored,
            "the seconds of videos are ignored: frames must be as far apart as they say"};
  }
  const auto restart = [&](const PositionSpan& span, int64_t first) {
    return span.kind == SpanKind::kText ? 0 : -comparison.Expected(first, axes - 1);
  };
  if (!plain && comparison.Is(Moved(tokens, expected, restart))) {
    return {PositionFault::kRestart,
            "images and videos begin at position 0 again: they must begin after the text before them"};
  }
  const Ids counters = Counters(tokens, 1, false);
  const auto counted = [&](const PositionSpan&, int64_t first) {
    return counters[first] - comparison.Expected(first, axes - 1);
  };
  if (!plain && comparison.Is(Moved(tokens, expected, counted))) {
    return {PositionFault::kSpanCounted,
            "text after an image or video continues by its number of tokens: it must continue after its larger side"};
  }
  for (const auto& [item, ids] : WithTextFrom(rule, model, tokens, expected, limits)) {
    if (!comparison.Is(ids)) continue;
    return {PositionFault::kCounters, fmt::format("images and videos after the first {} are counted as text", item)};
  }
  if (std::string offset = OffsetSentence(tokens, comparison); !offset.empty()) {
    return {PositionFault::kOffset, std::move(offset)};
  }
  return {PositionFault::kOther, ""};
}

absl::Status CheckSizes(const CountedPositions& expected, const GivenPositionIds& given) {
  const auto axes = static_cast<int64_t>(expected.axes.size());
  if (given.axes != 1 && given.axes != axes) {
    return InvalidArgument("MISMATCH", "ids.shape", fmt::format("{} axes", given.axes),
                           fmt::format("must have the model's {} axes, or one", axes));
  }
  if (given.deltas && given.deltas->size() != expected.deltas.size()) {
    return InvalidArgument("MISMATCH", "rope_deltas", fmt::format("{} values", given.deltas->size()),
                           fmt::format("must be one for each sequence: {}", expected.deltas.size()));
  }
  return absl::OkStatus();
}

// "deltas are +1 off", or the first that differs; empty if they are the same.
std::string DeltaSentence(const std::vector<double>& expected, const std::vector<double>& given) {
  const auto differs = std::mismatch(expected.begin(), expected.end(), given.begin());
  if (differs.first == expected.end()) return "";
  const double off = *differs.second - *differs.first;
  bool all = true;
  for (size_t n = 0; n < expected.size(); ++n) all &= given[n] - expected[n] == off;
  return all ? fmt::format("the ids are right, the deltas are {:+} off", off)
             : fmt::format("the ids are right, the delta of sequence {} is {}, not {}",
                           differs.first - expected.begin(), *differs.second, *differs.first);
}

}  // namespace

absl::StatusOr<PositionsComparison> ComparePositions(const PositionRule& rule, const ConfigObject& model,
                                                     const TokenDescription& tokens, const CountedPositions& expected,
                                                     const TokenChunk& chunk, const GivenPositionIds& given,
                                                     const Limits& limits) {
  POSENC_RETURN_IF_ERROR(CheckSizes(expected, given));
  const LargeBlocksMayBeRefused scope;
  const Comparison comparison(tokens, expected, chunk, given);
  PositionsComparison result;
  comparison.All([&](int64_t token, int64_t axis, double id) {
    if (id == comparison.Expected(token, axis)) return true;
    ++result.differing;
    if (!result.first) {
      result.first = {token / tokens.length, token % tokens.length, axis, comparison.Expected(token, axis), id};
    }
    return true;
  });
  if (!result.first) {
    result.sentence = given.deltas ? DeltaSentence(expected.deltas, *given.deltas) : "";
    result.fault = result.sentence.empty() ? PositionFault::kNone : PositionFault::kDelta;
    if (result.sentence.empty()) result.sentence = "the positions are the model's";
    return result;
  }
  Finding finding = Explain(rule, model, tokens, expected, comparison, limits);
  const PositionMismatch& first = *result.first;
  result.fault = finding.fault;
  result.sentence =
      fmt::format("{}{}{} of {} ids differ, first that of token {} of sequence {} on axis {}: it is {}, not {}",
                  finding.sentence, finding.sentence.empty() ? "" : "; ", result.differing, expected.ids.size(),
                  first.token, first.sequence, expected.axes[first.axis], first.given, first.expected);
  return result;
}

}  // namespace posenc
