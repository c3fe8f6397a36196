#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "posenc/base/status.h"
#include "tools/files/file_io.h"
#include "tools/files/random.h"
#include "tools/load/figures.h"
#include "tools/load/fleet.h"
#include "tools/load/live.h"
#include "tools/load/machine.h"
#include "tools/load/report_json.h"
#include "tools/load/wording.h"
#include "tools/posenc/remote/load_flags.h"
#include "tools/posenc/remote/load_output.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

using load::Results;
using load::StepPlan;

struct LoadFlags {
  CLI::App* app;
  WorkFlags work;
  ScheduleFlagGroup schedule;
  ClientFlags clients;
  LoadOutput output;
  std::string record;
  bool quiet = false;
  std::vector<std::string> merge;
};

constexpr int64_t kPeakConcurrency = 16;  // of the closed loop that measures the peak, per connection
constexpr double kPeakSeconds = 5;        // at most, before a search
constexpr double kMostNoise = 0.05;       // share of the processors

std::atomic<bool>* stop_at_interrupt = nullptr;

// The first SIGINT stops the test, and the results so far are reported. A second one ends the program.
void StopAtInterrupt(std::atomic<bool>* stop) {
  stop_at_interrupt = stop;
  struct sigaction action = {};
  action.sa_handler = [](int) { *stop_at_interrupt = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

void AddVerification(const Results& part, Results* all) {
  all->verified += part.verified;
  all->mismatches += part.mismatches;
  all->not_verified += part.not_verified;
  if (!all->first_mismatch) all->first_mismatch = part.first_mismatch;
}

// Appends the results of a later step to `all`.
void Append(Results part, bool warm_up, Results* all) {
  load::Step& step = part.steps[0];
  step.begin_second = static_cast<int64_t>(all->timeline.size());
  for (const load::Stall& stall : step.stalls) {
    all->warnings.push_back(absl::StrFormat("%s: no answer for %.1f s at %.1f s", step.name, stall.seconds,
                                            static_cast<double>(step.begin_second) + stall.begin));
  }
  if (!warm_up) {
    all->seconds += part.seconds;
    all->drain_seconds += part.drain_seconds;
    all->total.Merge(step.measured);
    all->steps.push_back(std::move(step));
    all->client_cpu_share = std::max(all->client_cpu_share, part.client_cpu_share);
    all->late_starts_p99_us = std::max(all->late_starts_p99_us, part.late_starts_p99_us);
  }
  for (load::Second& second : part.timeline) all->timeline.push_back(std::move(second));
  AddVerification(part, all);
  for (std::string& warning : part.warnings) all->warnings.push_back(std::move(warning));
  all->clients = part.clients;
  all->server_version = part.server_version;
  all->server_cpu_target = part.server_cpu_target;
}

// A running load test.
class Test {
 public:
  Test(load::Fleet* fleet, load::Live* live) : fleet_(*fleet), live_(*live) {}

  absl::Status RunAll(const std::vector<StepPlan>& plans) {
    for (const StepPlan& plan : plans) {
      POSENC_ASSIGN_OR_RETURN(std::optional<Results> part, RunLoad(plan));
      live_.EndStep("");
      if (part) Append(*std::move(part), plan.warm_up, &all_);
    }
    return absl::OkStatus();
  }

  // Measures the throughput of a closed loop. `warm_up`: the loop is not one of the run's steps.
  absl::Status MeasurePeak(int64_t concurrency, double seconds, bool warm_up, uint64_t seed) {
    const StepPlan plan{.name = absl::StrCat("peak: concurrency ", concurrency),
                        .concurrency = concurrency,
                        .seconds = seconds,
                        .warm_up = warm_up,
                        .seed = seed};
    POSENC_ASSIGN_OR_RETURN(std::optional<Results> part, RunLoad(plan));
    live_.EndStep("");
    if (!part) return absl::OkStatus();
    all_.peak_per_second = load::FiguresOf(part->steps[0], 0).achieved_per_second;
    if (all_.peak_per_second <= 0 && !stopped()) return absl::FailedPreconditionError("no call of the peak succeeded");
    Append(*std::move(part), warm_up, &all_);
    return absl::OkStatus();
  }

  // Offers multiples of the peak.
  absl::Status Overload(const ScheduleFlagGroup::Overload& overload, uint64_t seed) {
    if (overload.warm_up_seconds > 0) {
      POSENC_RETURN_IF_ERROR(MeasurePeak(overload.concurrency, overload.warm_up_seconds, /*warm_up=*/true, seed));
    }
    POSENC_RETURN_IF_ERROR(MeasurePeak(overload.concurrency, overload.seconds, /*warm_up=*/false, seed));
    for (const double factor : overload.factors) {
      StepPlan plan =
          load::StepAt(factor * all_.peak_per_second, overload.seconds, overload.arrivals, RandomAt(seed, ++steps_));
      plan.name = absl::StrFormat("%gx", factor);
      const size_t before = all_.steps.size();
      POSENC_RETURN_IF_ERROR(RunAll({plan}));
      if (all_.steps.size() > before) all_.steps.back().overload = factor;
    }
    return absl::OkStatus();
  }

  absl::Status Search(const ScheduleFlagGroup::Search& search, uint64_t seed) {
    // The peak is also the warm-up.
    const double peak_seconds = std::max(search.warm_up_seconds, std::min(search.seconds, kPeakSeconds));
    POSENC_RETURN_IF_ERROR(MeasurePeak(search.concurrency, peak_seconds, /*warm_up=*/true, seed));
    if (stopped()) return absl::OkStatus();
    load::SearchOptions options = search.options;
    if (!search.rate_given) {
      options.first_rate = load::RoundRate(
          std::clamp(all_.peak_per_second / 2, load::SearchOptions::kLeastRate, load::SearchOptions::kMostRate));
    }
    uint64_t tries = 0;
    // Results of the rates that met the objective; those of the highest one become the whole test's figures.
    std::map<double, Results> met;
    const auto attempt = [&](double rate) -> absl::StatusOr<std::optional<Results>> {
      const uint64_t step_seed = RandomAt(seed, ++tries);
      POSENC_ASSIGN_OR_RETURN(std::optional<Results> part,
                              RunLoad(load::StepAt(rate, search.seconds, search.arrivals, step_seed)));
      if (!stopped()) return part;
      live_.EndStep("");
      if (part) AddVerification(*part, &all_);
      return std::nullopt;  // an interrupted try counts only for verification
    };
    const auto seen = [&](Results part) {
      const load::Step& step = part.steps[0];
      live_.EndStep(load::VerdictOf(step));
      // Doubts about rates that were only tried are of no use to the reader.
      if (step.held == true) met.emplace(step.rate, part);
      part.warnings.clear();
      Append(std::move(part), /*warm_up=*/false, &all_);
    };
    POSENC_ASSIGN_OR_RETURN(const load::Found found, load::SearchRate(search.objective, options, attempt, seen));
    if (found.lowest_missed > 0) all_.lowest_missed_rate = found.lowest_missed;
    if (found.highest_met <= 0) return absl::OkStatus();
    all_.highest_rate = found.highest_met;
    const Results& best = met.at(found.highest_met);
    all_.warnings.insert(all_.warnings.end(), best.warnings.begin(), best.warnings.end());
    all_.total = best.steps[0].measured;
    all_.seconds = best.seconds;
    all_.drain_seconds = best.drain_seconds;
    all_.client_cpu_share = best.client_cpu_share;
    all_.late_starts_p99_us = best.late_starts_p99_us;
    if (!stopped() && found.lowest_missed <= 0) {
      all_.warnings.emplace_back(
          "no rate up to the search's limit clearly missed the objective: the highest may be higher");
    }
    return absl::OkStatus();
  }

  bool stopped() const { return fleet_.shared().stop; }
  Results& all() { return all_; }

 private:
  // Returns nullopt if the test was stopped before the step began.
  absl::StatusOr<std::optional<Results>> RunLoad(const StepPlan& plan) {
    if (stopped()) return std::nullopt;
    live_.BeginStep(plan);
    absl::StatusOr<Results> results = fleet_.Run(plan);
    if (results.ok()) return *std::move(results);
    live_.EndStep("");
    return results.status();
  }

  load::Fleet& fleet_;
  load::Live& live_;
  Results all_;
  uint64_t steps_ = 0;  // of overload
};

// Returns the given flags of the command line with their values.
std::map<std::string, std::string> SettingsOf(const CLI::App& app) {
  std::map<std::string, std::string> settings;
  for (const CLI::App* level = &app; level != nullptr; level = level->get_parent()) {
    for (const CLI::Option* option : level->get_options()) {
      if (option->count() > 0) settings.emplace(option->get_name(), absl::StrJoin(option->results(), ","));
    }
  }
  return settings;
}

absl::Status RunLoad(const LoadFlags& flags, Session& session) {
  Missing missing;
  flags.clients.AddMissing(session.server(), &missing);
  flags.schedule.AddMissing(&missing);
  POSENC_RETURN_IF_ERROR(missing.Get());
  POSENC_ASSIGN_OR_RETURN(const load::Baseline baseline, flags.output.Check());
  POSENC_ASSIGN_OR_RETURN(load::RunnerOptions options, flags.clients.Get(session.server(), session.tls()));
  POSENC_ASSIGN_OR_RETURN(const load::Mix mix, flags.work.Get());
  std::vector<StepPlan> plans;
  std::optional<ScheduleFlagGroup::Search> search;
  std::optional<ScheduleFlagGroup::Overload> overload;
  const int64_t peak_concurrency = std::min(
      options.max_in_flight, kPeakConcurrency * options.connections * static_cast<int64_t>(options.servers.size()));
  if (flags.schedule.searches()) {
    POSENC_ASSIGN_OR_RETURN(search, flags.schedule.GetSearch(peak_concurrency));
  } else if (flags.schedule.overloads()) {
    POSENC_ASSIGN_OR_RETURN(overload, flags.schedule.GetOverload(peak_concurrency));
  } else {
    POSENC_ASSIGN_OR_RETURN(plans, flags.schedule.Plans(mix.seed));
  }
  for (const StepPlan& plan : plans) options.most_concurrent = std::max(options.most_concurrent, plan.concurrency);
  if (!flags.record.empty()) POSENC_RETURN_IF_ERROR(WriteWholeFile(flags.record, load::MixToJson(mix)));

  const std::string begin_time = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  const auto processes = static_cast<size_t>(flags.clients.processes());
  POSENC_ASSIGN_OR_RETURN(const std::unique_ptr<load::Fleet> fleet, load::Fleet::Create(mix, options, processes));
  StopAtInterrupt(&fleet->shared().stop);
  const double bandwidth = load::MeasureMemoryBandwidth();
  const load::Noise noise = load::MeasureNoise();
  load::Live live(fleet->shared().progress, processes, !flags.quiet);
  Test test(fleet.get(), &live);
  POSENC_RETURN_IF_ERROR(search     ? test.Search(*search, mix.seed)
                         : overload ? test.Overload(*overload, mix.seed)
                                    : test.RunAll(plans));

  Results& all = test.all();
  if (all.steps.empty()) return absl::CancelledError("interrupted before anything was measured");
  all.interrupted = test.stopped();
  if (all.interrupted) all.warnings.insert(all.warnings.begin(), "interrupted: these are the results until then");
  all.verify = options.verify;
  all.settings = SettingsOf(*flags.app);
  all.mix_json = load::MixToJson(mix);
  all.begin_time = begin_time;
  all.memory_bytes_per_second = bandwidth;
  all.noise = noise;
  if (noise.share > kMostNoise) {
    all.warnings.push_back(
        absl::StrFormat("this machine was not quiet: before the run others took %.0f %% of the processors, for up to "
                        "%.1f ms at a time; "
                        "expect figures that differ from run to run",
                        100 * noise.share, 1e-3 * noise.longest_us));
  }
  return flags.output.Deliver(session, baseline, &all);
}

absl::Status Merge(const LoadFlags& flags, Session& session) {
  for (const CLI::Option* option : flags.app->get_options()) {
    if (option->count() > 0 && option->get_group() != LoadOutput::kGroup) {
      return UsageError(absl::StrCat(option->get_name(), ": not allowed with merge, which makes no calls"));
    }
  }
  POSENC_ASSIGN_OR_RETURN(const load::Baseline baseline, flags.output.Check());
  std::optional<Results> all;
  std::set<std::string> runs;
  for (const std::string& path : flags.merge) {
    POSENC_ASSIGN_OR_RETURN(Results results, ReadResults(path));
    if (!runs.insert(load::ToJson(results)).second) return UsageError(path + ": holds the same run as an earlier file");
    const absl::Status same_time = load::CheckSameTime(all ? *all : results, results);
    if (!same_time.ok()) return absl::Status(same_time.code(), absl::StrCat(path, ": ", same_time.message()));
    if (all) {
      all->Merge(results);
    } else {
      all = std::move(results);
    }
  }
  return flags.output.Deliver(session, baseline, &*all);
}

}  // namespace

Subcommand AddLoad(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("load", "Runs a load test on a server");
  const auto flags = std::make_shared<LoadFlags>();
  flags->app = app;
  flags->schedule.Add(*app);
  flags->work.Add(*app);
  flags->clients.Add(*app);
  flags->output.Add(*app);
  app->get_option("--concurrency")->excludes(app->get_option("--max-in-flight"));
  app->add_option("--record", flags->record, "Write the calls and the seed to this file, for --mix")
      ->type_name("FILE.json")
      ->group("Work");
  app->add_flag("--quiet", flags->quiet, "Print no progress")->group(LoadOutput::kGroup);
  CLI::App* merge = app->add_subcommand("merge", "Merges results of clients that ran at the same time into one report");
  merge->add_option("FILE", flags->merge, "Result files written by -o")->required();
  return {app, [flags, merge](Session& session) {
            return merge->parsed() ? Merge(*flags, session) : RunLoad(*flags, session);
          }};
}

}  // namespace posenc::command
