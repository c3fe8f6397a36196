#include "tools/load/search.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_split.h"
#include "posenc/base/status.h"
#include "tools/load/duration.h"

namespace posenc::load {
namespace {

constexpr double kOverdue = 1.01;

constexpr int64_t kTriesToMiss = 3;
constexpr double kFarOff = 5;  // times the allowed share: misses at the first try

constexpr double kNormal = 2.576;  // 99.5 % quantile of the normal distribution

// 99.5 % quantile of Student's distribution: the expansion of Cornish and Fisher, and its values where that is too low.
double StudentQuantile(double degrees) {
  if (degrees < 4) return degrees < 2 ? 63.66 : degrees < 3 ? 9.92 : 5.84;
  const double z = kNormal, cube = z * z * z;
  return z + (cube + z) / (4 * degrees) + (5 * cube * z * z + 16 * cube + 3 * z) / (96 * degrees * degrees);
}

}  // namespace

double RoundRate(double rate) {
  const double unit = std::pow(10.0, std::floor(std::log10(rate)) - 2) * 5;
  return std::round(rate / unit) * unit;
}

Interval ShareOver(const std::vector<Cluster>& seconds) {
  double calls = 0, over = 0;
  for (const Cluster& second : seconds) {
    calls += second.calls;
    over += second.over;
  }
  if (calls == 0) return {};
  const double share = over / calls;
  double z = kNormal, independent = calls;
  if (over > 0 && over < calls) {
    double squares = 0;
    for (const Cluster& second : seconds) {
      const double excess = second.over - share * second.calls;
      squares += excess * excess;
    }
    const auto count = static_cast<double>(seconds.size());
    if (count < 2) return {};
    const double variance = squares / (calls * calls) * count / (count - 1);
    independent = std::min(calls, share * (1 - share) / variance);
    z = StudentQuantile(count - 1);
  }
  // Wilson's interval of a share.
  const double middle = share + z * z / (2 * independent);
  const double half = z * std::sqrt(share * (1 - share) / independent + z * z / (4 * independent * independent));
  const double scale = 1 + z * z / independent;
  return {std::max(0.0, (middle - half) / scale), std::min(1.0, (middle + half) / scale)};
}

void Objective::Judge(Results* results) const {
  Step& step = results->steps[0];
  const Counts& counts = step.measured.counts;
  step.held.reset();
  std::vector<Cluster> failures;
  for (const Second& second : results->timeline) {
    const Counts& calls = second.measured.counts;
    failures.push_back({static_cast<double>(calls.intended), static_cast<double>(calls.skipped + calls.failed)});
  }
  bool missed = (counts.intended > 0 && counts.succeeded == 0) || ShareOver(failures).low > max_failures;
  // Too many failures in one second of several may be chance.
  bool unclear =
      static_cast<double>(counts.skipped + counts.failed) > max_failures * static_cast<double>(counts.intended);
  double nearest = -1;  // greatest upper end of an interval, as a multiple of the allowed share
  for (const Limit& limit : limits) {
    const double allowed = 1 - limit.percentile / 100;
    std::vector<Cluster> seconds;
    for (const Second& second : results->timeline) {
      const Measurement& measured = second.measured;
      const int64_t lost = measured.counts.skipped + measured.counts.failed;
      seconds.push_back({static_cast<double>(measured.counts.intended),
                         static_cast<double>(measured.service.CountAbove(limit.microseconds) + lost)});
    }
    const Interval over = ShareOver(seconds);
    const bool all_within = step.measured.service.CountAbove(limit.microseconds) == 0;
    // No interval ends at 0: a maximum holds for the calls that were made.
    const bool misses = allowed > 0 ? over.low > allowed : !all_within;
    missed |= misses;
    unclear |= !misses && (allowed > 0 ? over.high > allowed : false);
    const double ratio = allowed > 0 ? over.high / allowed : all_within ? 0 : HUGE_VAL;
    if (ratio <= nearest) continue;
    nearest = ratio;
    step.late = over;
    step.late_allowed = allowed;
  }
  if (missed || !unclear) step.held = !missed;
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

namespace {

// Appends another try at the same rate.
void AddTry(Results part, Results* all) {
  Step& step = all->steps[0];
  const Step& more = part.steps[0];
  for (const Stall& stall : more.stalls) {
    step.stalls.push_back({static_cast<double>(all->timeline.size()) + stall.begin, stall.seconds});
  }
  step.measured.Merge(more.measured);
  step.seconds += more.seconds;
  step.drain_seconds += more.drain_seconds;
  all->seconds += part.seconds;
  all->drain_seconds += part.drain_seconds;
  all->timeline.insert(all->timeline.end(), part.timeline.begin(), part.timeline.end());
  all->client_cpu_share = std::max(all->client_cpu_share, part.client_cpu_share);
  all->late_starts_p99_us = std::max(all->late_starts_p99_us, part.late_starts_p99_us);
  all->verified += part.verified;
  all->mismatches += part.mismatches;
  all->not_verified += part.not_verified;
  if (!all->first_mismatch) all->first_mismatch = part.first_mismatch;
  all->warnings = std::move(part.warnings);  // tries at one rate differ little in them
}

// False if all tries at a rate make too few calls to meet the objective clearly, even if none is over a limit.
bool CanBeClear(const Objective& objective, const SearchOptions& options, double rate) {
  const double calls = rate * options.seconds * static_cast<double>(options.most_tries);
  return options.seconds <= 0 ||
         std::all_of(objective.limits.begin(), objective.limits.end(), [&](const Objective::Limit& limit) {
           const double allowed = 1 - limit.percentile / 100;
           return allowed <= 0 || ShareOver({{calls, 0}}).high <= allowed;
         });
}

}  // namespace

absl::StatusOr<Found> SearchRate(const Objective& objective, const SearchOptions& options, const Try& run,
                                 const std::function<void(Results)>& seen) {
  std::map<double, std::optional<bool>> verdicts;  // by rate; absent: unclear
  bool stopped = false;
  // Tries a rate until its verdict is clear.
  const auto attempt = [&](double rate) -> absl::Status {
    std::optional<Results> all;
    int64_t overdue = 0;
    for (int64_t tries = 1; tries <= options.most_tries; ++tries) {
      POSENC_ASSIGN_OR_RETURN(std::optional<Results> part, run(rate));
      if (!part) {
        stopped = true;
        if (all) seen(*std::move(all));
        return absl::OkStatus();
      }
      overdue += options.seconds > 0 && part->steps[0].seconds > kOverdue * options.seconds ? 1 : 0;
      if (all) {
        AddTry(*std::move(part), &*all);
      } else {
        all = std::move(part);
      }
      Step& step = all->steps[0];
      step.tries = tries;
      objective.Judge(&*all);
      // A pause of the machine can make any rate miss, but none meet: an answer against a rate takes more tries.
      if (step.held == false && tries < std::min(kTriesToMiss, options.most_tries) &&
          step.late.low < kFarOff * step.late_allowed)
        step.held.reset();
      // The client did not offer the rate: by chance if once, because it cannot if twice.
      if (overdue == 1 && step.held == true) step.held.reset();
      if (overdue > 1) step.held = false;
      if (step.held) break;
    }
    verdicts[rate] = all->steps[0].held;
    seen(*std::move(all));
    return absl::OkStatus();
  };
  // The highest rate that met the objective counts only below the lowest that missed it.
  const auto found = [&] {
    Found rates;
    for (const auto& [rate, held] : verdicts) {
      if (held == false) {
        rates.lowest_missed = rate;
        break;
      }
      if (held == true) rates.highest_met = rate;
    }
    return rates;
  };
  POSENC_RETURN_IF_ERROR(attempt(options.first_rate));
  for (double rate = RoundRate(2 * options.first_rate);
       !stopped && found().lowest_missed == 0 && rate <= options.most_rate; rate = RoundRate(2 * rate)) {
    POSENC_RETURN_IF_ERROR(attempt(rate));
  }
  for (double rate = RoundRate(options.first_rate / 2);
       !stopped && found().highest_met == 0 && rate >= SearchOptions::kLeastRate &&
       CanBeClear(objective, options, rate);
       rate = RoundRate(rate / 2)) {
    POSENC_RETURN_IF_ERROR(attempt(rate));
  }
  // Bisects between the rates that are met and those that are not, and between the unclear and the missed ones.
  while (!stopped) {
    const auto [met, missed] = found();
    if (met == 0 || missed == 0) break;
    const auto above_met = std::next(verdicts.find(met)), at_missed = verdicts.find(missed);
    const std::pair<double, double> gaps[] = {{met, above_met->first}, {std::prev(at_missed)->first, missed}};
    const auto wide = [&](const std::pair<double, double>& gap) {
      const double middle = RoundRate((gap.first + gap.second) / 2);
      return gap.second > gap.first * (1 + options.precision) && middle > gap.first && middle < gap.second;
    };
    const auto* const gap = std::find_if(std::begin(gaps), std::end(gaps), wide);
    if (gap == std::end(gaps)) break;
    POSENC_RETURN_IF_ERROR(attempt(RoundRate((gap->first + gap->second) / 2)));
  }
  return found();
}

}  // namespace posenc::load
