#include "posenc/diagnose/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "posenc/base/interruption.h"
#include "posenc/diagnose/options.h"

namespace posenc::diagnose {
namespace {

constexpr size_t kMostRanges = 256;  // more are replaced by the range that contains them
constexpr size_t kMostSaid = 6;      // ranges in words
constexpr size_t kMostGroups = 16;   // of heads with the same tokens

// The tokens of one head of one batch row that are in the set, and those that would be if the fault showed there.
struct HeadTokens {
  int64_t batch_row, head;
  std::vector<uint8_t> in_set, hidden;
};

// True if the heads differ by hidden tokens only.
bool Alike(const HeadTokens& a, const HeadTokens& b) {
  if (a.in_set.size() != b.in_set.size()) return false;
  for (size_t t = 0; t < a.in_set.size(); ++t) {
    if (a.in_set[t] && !b.in_set[t] && !b.hidden[t]) return false;
    if (b.in_set[t] && !a.in_set[t] && !a.hidden[t]) return false;
  }
  return true;
}

std::vector<HeadTokens> HeadsOf(const Evidence& evidence, const Rows& rows, const std::vector<uint8_t>& in_set,
                                const std::vector<uint8_t>& fitting) {
  const BatchRows batch(evidence, rows);
  std::vector<HeadTokens> heads;
  for (const int64_t b : batch.filled()) {
    InterruptionPoint();
    for (int64_t h = 0; h < rows.heads; ++h) {
      HeadTokens one{b, h, {}, {}};
      bool any = false;
      for (int64_t t = batch.Begin(b); t < batch.End(b); ++t) {
        const bool in = in_set[t * rows.heads + h] != 0;
        one.in_set.push_back(in);
        one.hidden.push_back(!in && fitting[t * rows.heads + h]);
        any |= in;
      }
      if (any) heads.push_back(std::move(one));
    }
  }
  return heads;
}

// Parts of one operand's rows: heads with the same tokens together.
std::vector<Part> PartsOf(const Evidence& evidence, const Rows& rows, const std::vector<uint8_t>& in_set,
                          const std::vector<uint8_t>& fitting) {
  struct Group {
    HeadTokens tokens;                              // of all its heads
    std::map<int64_t, std::vector<uint8_t>> heads;  // by batch row
  };
  const int64_t batch_rows = BatchRows(evidence, rows).count();
  std::vector<Group> groups;
  for (HeadTokens& one : HeadsOf(evidence, rows, in_set, fitting)) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return Alike(g.tokens, one); });
    if (group == groups.end() && groups.size() == kMostGroups) --group;  // none of them is said exactly any more
    if (group == groups.end()) group = groups.insert(groups.end(), {one, {}});
    std::vector<uint8_t>& heads = group->heads[one.batch_row];
    heads.resize(rows.heads);
    heads[one.head] = 1;
    for (size_t t = 0; t < one.in_set.size(); ++t) {
      group->tokens.in_set[t] |= one.in_set[t];
      group->tokens.hidden[t] &= one.hidden[t];
    }
  }
  std::vector<Part> parts;
  for (const Group& group : groups) {
    std::vector<std::pair<std::vector<IndexRange>, std::vector<uint8_t>>> by_heads;  // batch rows with these heads
    for (const auto& [batch_row, heads] : group.heads) {
      const std::vector<IndexRange> ranges = Ranges(heads);
      auto same = std::find_if(by_heads.begin(), by_heads.end(), [&](const auto& one) { return one.first == ranges; });
      if (same == by_heads.end()) same = by_heads.insert(same, {ranges, std::vector<uint8_t>(batch_rows)});
      same->second[batch_row] = 1;
    }
    for (const auto& [heads, in] : by_heads) {
      Part part{.batch_rows = Ranges(in), .heads = heads, .tokens = Ranges(group.tokens.in_set)};
      part.all_that_show = true;
      for (size_t t = 0; t < group.tokens.in_set.size(); ++t) {
        part.all_that_show &= group.tokens.in_set[t] || group.tokens.hidden[t];
      }
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

int64_t CountOf(const IndexRange& range) { return (range.last - range.first) / range.step + 1; }

std::string InWords(const IndexRange& range) {
  const auto [first, last, step] = range;
  if (first == last) return fmt::format("{}", first);
  if (step > 1) return fmt::format("{}, {}, ..., {}", first, first + step, last);
  return first < 0 ? fmt::format("{} to {}", first, last) : fmt::format("{}-{}", first, last);
}

std::string List(const std::vector<IndexRange>& ranges) {
  std::string text;
  int64_t count = 0;
  for (const IndexRange& range : ranges) count += CountOf(range);
  for (size_t n = 0; n < ranges.size(); ++n) {
    if (n == kMostSaid) return fmt::format("{}, ... ({} in all)", text, count);
    text += n == 0 ? "" : n + 1 == ranges.size() ? " and " : ", ";
    text += InWords(ranges[n]);
  }
  return text;
}

std::string Named(const char* one, const char* several, const std::vector<IndexRange>& ranges) {
  const bool single = ranges.size() == 1 && ranges[0].first == ranges[0].last;
  return fmt::format("{} {}", single ? one : several, List(ranges));
}

}  // namespace

std::vector<IndexRange> Ranges(const std::vector<uint8_t>& in_set) {
  constexpr int64_t kProgression = 4;  // so many indices of equal steps are one range
  std::vector<int64_t> indices;
  for (size_t n = 0; n < in_set.size(); ++n) {
    if (in_set[n]) indices.push_back(static_cast<int64_t>(n));
  }
  if (indices.size() == in_set.size()) return {};
  std::vector<IndexRange> ranges;
  for (size_t n = 0; n < indices.size();) {
    size_t end = n + 1;
    while (end < indices.size() && indices[end] - indices[end - 1] == indices[n + 1] - indices[n]) ++end;
    const int64_t step = end > n + 1 ? indices[n + 1] - indices[n] : 1;
    if (step > 1 && static_cast<int64_t>(end - n) < kProgression) end = n + 1;
    ranges.push_back({indices[n], indices[end - 1], end > n + 1 ? step : 1});
    n = end;
  }
  if (ranges.size() > kMostRanges) ranges = {{ranges.front().first, ranges.back().last}};
  return ranges;
}

std::vector<Part> PartsOf(const Evidence& evidence, const RowSet& rows, const RowSet& fitting) {
  std::vector<std::vector<Part>> by_operand;
  bool alike = true;
  for (size_t n = 0; n < evidence.operands.size(); ++n) {
    by_operand.push_back(PartsOf(evidence, evidence.operands[n], rows[n], fitting[n]));
    alike &= by_operand[n] == by_operand[0];
  }
  const auto is_everything = [](const std::vector<Part>& parts) {
    return parts.size() == 1 && parts[0].is_everything();
  };
  if (alike || std::all_of(by_operand.begin(), by_operand.end(), is_everything)) return by_operand[0];
  std::vector<Part> parts;
  for (size_t n = 0; n < by_operand.size(); ++n) {
    for (Part& part : by_operand[n]) {
      part.operands = {evidence.operands[n].which};
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

std::string Describe(const Part& part, const TokenAxis& axis) {
  std::vector<std::string> words;
  for (const Operand operand : part.operands) words.emplace_back(operand == Operand::kKey ? "k" : "q");
  if (!part.batch_rows.empty()) words.push_back(Named("batch row", "batch rows", part.batch_rows));
  if (!part.heads.empty() && axis.is_table) {
    words.emplace_back(part.heads[0].first == 0 ? "the first elements of pairs" : "the second elements of pairs");
  } else if (!part.heads.empty()) {
    words.push_back(Named("head", "heads", part.heads));
  }
  if (part.has_tokens()) {
    const IndexRange& last = part.tokens.back();
    const bool to_the_end =
        part.tokens.size() == 1 && last.step == 1 && last.last + 1 == axis.count && last.first < last.last;
    words.push_back(to_the_end ? fmt::format("{} from {} on", axis.several, last.first)
                               : Named(axis.one, axis.several, part.tokens));
  }
  if (!part.pairs.empty()) words.push_back(Named("pair", "pairs", part.pairs));
  if (!part.keys.empty()) words.push_back(Named("key", "keys", part.keys));
  if (!part.distances.empty()) words.push_back(Named("distance", "distances", part.distances));
  const std::string text = fmt::format("{}", fmt::join(words, ", "));
  if (part.cells == 0) return text;
  return fmt::format("{} cell{}{}{}", part.cells, part.cells == 1 ? "" : "s", text.empty() ? "" : " of ", text);
}

void Conclude(const Evidence& evidence, bool rest_matches, Verdict* verdict) {
  const int64_t longest = BatchRows(evidence, evidence.operands[0]).longest();
  const TokenAxis axis =
      evidence.is_table ? TokenAxis{"row", "rows", longest, true} : TokenAxis{"token", "tokens", longest};
  Conclude(axis, rest_matches, verdict);
}

bool IsRecipe(std::string_view code) {
  static constexpr std::string_view kRecipes[] = {"THETA_SCALE_ROUNDED", "EXPONENTS_ROUNDED", "RECURRENCE"};
  return std::find(std::begin(kRecipes), std::end(kRecipes), code) != std::end(kRecipes);
}

void Conclude(const TokenAxis& axis, bool rest_matches, Verdict* verdict) {
  std::string text;
  size_t named = 0;
  bool everywhere = false;
  for (const Fault& fault : verdict->faults) {
    named += fault.departures.size();
    if (!text.empty()) text += "; ";
    if (fault.departures.empty() && verdict->faults.size() > 1) text += "unexplained: ";
    text += fault.sentence;
    std::string others;
    for (const std::vector<Departure>& departures : fault.alternatives) {
      others += (others.empty() ? "" : "; or: ") + Sentence(departures);
    }
    if (!others.empty()) text += fmt::format(" (or, with the same bytes on this data: {})", others);
    std::vector<std::string> parts;
    for (const Part& part : fault.said.empty() ? fault.parts : fault.said) {
      everywhere |= part.is_everything();
      if (std::string words = Describe(part, axis); !words.empty()) parts.push_back(std::move(words));
    }
    constexpr size_t kMostParts = 4;
    if (parts.size() > kMostParts) {
      const size_t more = parts.size() - kMostParts + 1;
      parts.resize(kMostParts - 1);
      parts.push_back(fmt::format("{} more parts", more));
    }
    if (!parts.empty()) text += fmt::format(", in {}", fmt::join(parts, " and in "));
  }
  if (rest_matches && !everywhere) text += "; the rest matches";
  const bool recipes = std::all_of(verdict->faults.begin(), verdict->faults.end(), [](const Fault& fault) {
    return fault.departures.size() == 1 && IsRecipe(fault.departures[0].code);
  });
  if (recipes && verdict->tolerance.of_angle > 0) {
    verdict->kind = VerdictKind::kMatches;
    verdict->sentence = "by another recipe: " + text;
    return;
  }
  verdict->kind = named == 0                                  ? VerdictKind::kUnknown
                  : named == 1 && verdict->faults.size() == 1 ? VerdictKind::kDiffers
                                                              : VerdictKind::kSeveralFaults;
  verdict->sentence = std::move(text);
}

std::string Sentence(const std::vector<Departure>& departures) {
  std::string text;
  for (const Departure& departure : departures) text += (text.empty() ? "" : "; ") + departure.message;
  return text;
}

std::string Describe(const Tolerance& tolerance, DType after) {
  const bool wide = after == DType::kFP32 || after == DType::kFP64;
  std::string text = fmt::format("{} ulp at the norm of each pair", Short(wide ? tolerance.wide_ulp : tolerance.ulp));
  if (tolerance.of_angle > 0) {
    text += fmt::format(", and {:.3g} times the angle for float32 phases", tolerance.of_angle);
  }
  return text;
}

}  // namespace posenc::diagnose
