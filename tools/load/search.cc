#include "tools/load/search.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "absl/strings/str_split.h"
#include "posenc/base/status.h"
#include "tools/load/duration.h"

namespace posenc::load {
namespace {

constexpr double kOverdue = 1.01;

// Rounds to a multiple of 5 in the third significant digit, so that rates are easy to read.
double Round(double rate) {
  const double unit = std::pow(10.0, std::floor(std::log10(rate)) - 2) * 5;
  return std::round(rate / unit) * unit;
}

}  // namespace

bool Objective::Met(const Step& step) const {
  const Counts& counts = step.measured.counts;
  if (counts.succeeded == 0) return false;
  const auto intended = static_cast<double>(counts.intended);
  if (static_cast<double>(counts.skipped + counts.failed) > max_failures * intended) return false;
  if (seconds > 0 && step.seconds > kOverdue * seconds) return false;
  return std::all_of(limits.begin(), limits.end(), [&](const Limit& limit) {
    return step.measured.latency.Percentile(limit.percentile) <= limit.microseconds;
  });
}

absl::StatusOr<Objective> ParseObjective(const std::string& text) {
  const auto wrong = [&](std::string_view part) {
    return InvalidArgument("MALFORMED", "slo", part, "must be an objective such as p99=5ms, p99.9=20ms or max=1s");
  };
  Objective objective;
  const std::vector<std::string> parts = absl::StrSplit(text, ',');
  for (const std::string_view part : parts) {
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) return wrong(part);
    const std::string_view name = part.substr(0, equals);
    double percentile = 100;
    if (name != "max") {
      if (name.empty() || name[0] != 'p') return wrong(part);
      const auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), percentile);
      if (error != std::errc() || end != name.data() + name.size() || !(percentile > 0 && percentile <= 100)) {
        return wrong(part);
      }
    }
    const absl::StatusOr<double> seconds = ParseSeconds("slo", part.substr(equals + 1));
    if (!seconds.ok()) return wrong(part);
    objective.limits.push_back({percentile, std::llround(1e6 * *seconds)});
  }
  return objective;
}

absl::StatusOr<double> SearchRate(const Objective& objective, const SearchOptions& options, const Try& run,
                                  const std::function<void(Results)>& seen) {
  double held = 0, missed = 0;
  bool stopped = false;
  const auto attempt = [&](double rate) -> absl::Status {
    POSENC_ASSIGN_OR_RETURN(std::optional<Results> results, run(rate));
    stopped = !results;
    if (stopped) return absl::OkStatus();
    Step& step = results->steps[0];
    step.held = objective.Met(step);
    (*step.held ? held : missed) = rate;
    seen(std::move(*results));
    return absl::OkStatus();
  };
  for (double rate = options.first_rate; !stopped && rate >= SearchOptions::kLeastRate && rate <= options.most_rate;) {
    POSENC_RETURN_IF_ERROR(attempt(rate));
    if (held > 0 && missed > 0) break;
    rate = Round(held > 0 ? 2 * rate : rate / 2);
  }
  while (!stopped && held > 0 && missed > held * (1 + options.precision)) {
    const double rate = Round((held + missed) / 2);
    if (rate <= held || rate >= missed) break;
    POSENC_RETURN_IF_ERROR(attempt(rate));
  }
  return held;
}

}  // namespace posenc::load
