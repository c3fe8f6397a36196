#include "posenc/diagnose/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "posenc/base/interruption.h"
#include "posenc/diagnose/options.h"

namespace posenc::diagnose {
namespace {

constexpr size_t kMostRanges = 4;  // more are replaced by the range that contains them

// The part of one operand's rows; absent if there are none.
std::optional<Part> PartOf(const Evidence& evidence, const Rows& rows, const std::vector<uint8_t>& in_set,
                           const std::vector<uint8_t>& fitting) {
  const BatchRows batch(evidence, rows);
  std::vector<uint8_t> batch_rows(batch.count()), heads(rows.heads), tokens(batch.longest());
  for (const int64_t b : batch.filled()) {
    InterruptionPoint();
    const int64_t begin = batch.Begin(b), count = batch.End(b) - begin;
    for (int64_t h = 0; h < rows.heads; ++h) {
      const auto at = [&](const std::vector<uint8_t>& set, int64_t t) {
        return set[(begin + t) * rows.heads + h] != 0;
      };
      int64_t first = 0, last = count - 1;
      while (first < count && !at(in_set, first)) ++first;
      if (first == count) continue;
      while (!at(in_set, last)) --last;
      batch_rows[b] = heads[h] = 1;
      for (int64_t t = first; t <= last; ++t) tokens[t] |= at(in_set, t) || at(fitting, t);
      for (int64_t t = first - 1; t >= 0 && at(fitting, t); --t) tokens[t] = 1;
      for (int64_t t = last + 1; t < count && at(fitting, t); ++t) tokens[t] = 1;
    }
  }
  if (std::find(heads.begin(), heads.end(), 1) == heads.end()) return std::nullopt;
  return Part{.batch_rows = Ranges(batch_rows), .heads = Ranges(heads), .tokens = Ranges(tokens)};
}

std::string List(const std::vector<IndexRange>& ranges) {
  std::string text;
  for (size_t n = 0; n < ranges.size(); ++n) {
    text += n == 0 ? "" : n + 1 == ranges.size() ? " and " : ", ";
    const auto [first, last] = ranges[n];
    text += first == last ? fmt::format("{}", first)
            : first < 0   ? fmt::format("{} to {}", first, last)
                          : fmt::format("{}-{}", first, last);
  }
  return text;
}

std::string Named(const char* one, const char* several, const std::vector<IndexRange>& ranges) {
  const bool single = ranges.size() == 1 && ranges[0].first == ranges[0].last;
  return fmt::format("{} {}", single ? one : several, List(ranges));
}

}  // namespace

std::vector<IndexRange> Ranges(const std::vector<uint8_t>& in_set) {
  std::vector<IndexRange> ranges;
  for (size_t n = 0; n < in_set.size(); ++n) {
    if (!in_set[n]) continue;
    const auto index = static_cast<int64_t>(n);
    if (!ranges.empty() && ranges.back().last == index - 1) {
      ranges.back().last = index;
    } else {
      ranges.push_back({index, index});
    }
  }
  if (ranges.size() > kMostRanges) ranges = {{ranges.front().first, ranges.back().last}};
  if (ranges.size() == 1 && ranges[0].first == 0 && ranges[0].last + 1 == static_cast<int64_t>(in_set.size())) {
    ranges.clear();
  }
  return ranges;
}

std::vector<Part> PartsOf(const Evidence& evidence, const RowSet& rows, const RowSet& fitting) {
  std::vector<Part> parts;
  bool alike = true, all = true;
  for (size_t n = 0; n < evidence.operands.size(); ++n) {
    std::optional<Part> part = PartOf(evidence, evidence.operands[n], rows[n], fitting[n]);
    all = all && part;
    if (!part) continue;
    if (!parts.empty()) {
      Part unnamed = parts[0];
      unnamed.operands.clear();
      alike = alike && unnamed == *part;
    }
    if (evidence.operands.size() > 1) part->operands = {evidence.operands[n].which};
    parts.push_back(*std::move(part));
  }
  if (all && alike && !parts.empty()) {
    parts.resize(1);
    parts[0].operands.clear();
  }
  return parts;
}

std::string Describe(const Part& part, const TokenAxis& axis) {
  std::vector<std::string> words;
  for (const Operand operand : part.operands) words.emplace_back(operand == Operand::kKey ? "k" : "q");
  if (!part.batch_rows.empty()) words.push_back(Named("batch row", "batch rows", part.batch_rows));
  if (!part.heads.empty()) words.push_back(Named("head", "heads", part.heads));
  if (!part.tokens.empty()) {
    const IndexRange& last = part.tokens.back();
    const bool to_the_end = part.tokens.size() == 1 && last.last + 1 == axis.count && last.first < last.last;
    words.push_back(to_the_end ? fmt::format("{} from {} on", axis.several, last.first)
                               : Named(axis.one, axis.several, part.tokens));
  }
  if (!part.pairs.empty()) words.push_back(Named("pair", "pairs", part.pairs));
  if (!part.distances.empty()) words.push_back(Named("distance", "distances", part.distances));
  return fmt::format("{}", fmt::join(words, ", "));
}

void Conclude(const Evidence& evidence, bool rest_matches, Verdict* verdict) {
  const int64_t longest = BatchRows(evidence, evidence.operands[0]).longest();
  const TokenAxis axis = evidence.is_table ? TokenAxis{"row", "rows", longest} : TokenAxis{"token", "tokens", longest};
  Conclude(axis, rest_matches, verdict);
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
    for (const Part& part : fault.parts) {
      everywhere |= part.is_everything();
      if (std::string words = Describe(part, axis); !words.empty()) parts.push_back(std::move(words));
    }
    if (!parts.empty()) text += fmt::format(", in {}", fmt::join(parts, " and in "));
  }
  if (rest_matches && !everywhere) text += "; the rest matches";
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
