#include <cctype>
#include <cmath>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "tools/load/histogram_text.h"

namespace posenc::load {
namespace {

constexpr std::string_view kTitle = "       Value     Percentile TotalCount 1/(1-Percentile)\n\n";

// The first percentile after this one that has a line.
double Next(double percentile) {
  const int halvings = static_cast<int>(std::log2(100 / (100 - percentile)));
  const double next = percentile + 100 / (5 * std::exp2(halvings + 1));
  return next > percentile ? next : 100;
}

}  // namespace

std::string ToHgrm(const Histogram& histogram, double unit) {
  std::string text(kTitle);
  const auto out = std::back_inserter(text);
  const auto total = static_cast<double>(histogram.Count());
  double percentile = 0;
  int64_t seen = 0;
  for (const auto& [index, count] : histogram.counts()) {
    seen += count;
    const double value = static_cast<double>(Histogram::Highest(index)) / unit;
    const double reached = 100 * static_cast<double>(seen) / total;
    // At the last value one line is enough before the one of 100 %.
    for (bool more = true; more && reached >= percentile && percentile < 100; percentile = Next(percentile)) {
      fmt::format_to(out, "{:12.3f} {:.12f} {:10} {:14.2f}\n", value, percentile / 100, seen,
                     1 / (1 - percentile / 100));
      more = seen < histogram.Count();
    }
  }
  const double max = static_cast<double>(histogram.Max()) / unit;
  if (total > 0) fmt::format_to(out, "{:12.3f} {:.12f} {:10}\n", max, 1.0, seen);
  fmt::format_to(out, "#[Mean    = {:12.3f}, StdDeviation   = {:12.3f}]\n", histogram.Mean() / unit,
                 histogram.StandardDeviation() / unit);
  fmt::format_to(out, "#[Max     = {:12.3f}, Total count    = {:12}]\n", max, seen);
  return text + "#[Buckets =           22, SubBuckets     =         2048]\n";
}

absl::StatusOr<Histogram> FromHgrm(std::string_view text, double unit) {
  Histogram histogram;
  bool titled = false;
  int number = 1;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    std::string first;
    if (!(words >> first) || first.front() == '#') continue;
    if (!titled) {
      if (first != "Value") return absl::InvalidArgumentError("is no .hgrm file: it does not begin with a title");
      titled = true;
      continue;
    }
    double value, percentile;
    int64_t seen;
    words.seekg(0);
    if (!(words >> value >> percentile >> seen) || !(words.eof() || std::isspace(words.peek())) || value < 0 ||
        seen < histogram.Count()) {
      return absl::InvalidArgumentError(absl::StrCat("line ", number, ": ", Quote(line),
                                                     ": must be a value, a percentile and a count that does not fall"));
    }
    const double scaled = std::round(value * unit);
    histogram.Record(scaled < Histogram::kHighest ? static_cast<int64_t>(scaled) : Histogram::kHighest,
                     seen - histogram.Count());
  }
  if (!titled) return absl::InvalidArgumentError("is no .hgrm file: it is empty");
  return histogram;
}

}  // namespace posenc::load
