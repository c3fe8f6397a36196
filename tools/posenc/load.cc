#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "posenc/base/status.h"
#include "tools/files/file_io.h"
#include "tools/files/random.h"
#include "tools/load/bandwidth.h"
#include "tools/load/fleet.h"
#include "tools/load/live.h"
#include "tools/posenc/load_flags.h"
#include "tools/posenc/load_output.h"
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

  absl::Status Search(const ScheduleFlagGroup::Search& search, uint64_t seed) {
    if (search.warm_up_seconds > 0) {
      StepPlan warm_up = load::StepAt(search.options.first_rate, search.warm_up_seconds, search.arrivals, seed);
      warm_up.warm_up = true;
      POSENC_RETURN_IF_ERROR(RunAll({warm_up}));
    }
    uint64_t tries = 0;
    // Results of the highest rate that held; they become the whole test's figures.
    Results best;
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
      live_.EndStep(*step.held ? "met" : "not met");
      if (*step.held && (best.steps.empty() || step.rate > best.steps[0].rate)) best = part;
      Append(std::move(part), /*warm_up=*/false, &all_);
    };
    POSENC_ASSIGN_OR_RETURN(const double rate, load::SearchRate(search.objective, search.options, attempt, seen));
    if (rate <= 0) return absl::OkStatus();
    all_.highest_rate = rate;
    all_.total = best.steps[0].measured;
    all_.seconds = best.seconds;
    all_.drain_seconds = best.drain_seconds;
    all_.client_cpu_share = best.client_cpu_share;
    all_.late_starts_p99_us = best.late_starts_p99_us;
    if (!stopped() && std::all_of(all_.steps.begin(), all_.steps.end(), [](const auto& step) { return *step.held; })) {
      all_.warnings.emplace_back("every rate up to the search's limit met the objective: the highest may be higher");
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
  POSENC_ASSIGN_OR_RETURN(const load::Baseline baseline, flags.output.Check());
  POSENC_ASSIGN_OR_RETURN(load::RunnerOptions options, flags.clients.Get(session.server(), session.tls()));
  POSENC_ASSIGN_OR_RETURN(const load::Mix mix, flags.work.Get());
  std::vector<StepPlan> plans;
  std::optional<ScheduleFlagGroup::Search> search;
  if (flags.schedule.searches()) {
    POSENC_ASSIGN_OR_RETURN(search, flags.schedule.GetSearch());
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
  load::Live live(fleet->shared().progress, processes, !flags.quiet);
  Test test(fleet.get(), &live);
  POSENC_RETURN_IF_ERROR(search ? test.Search(*search, mix.seed) : test.RunAll(plans));

  Results& all = test.all();
  if (all.steps.empty()) return absl::CancelledError("interrupted before anything was measured");
  all.interrupted = test.stopped();
  if (all.interrupted) all.warnings.insert(all.warnings.begin(), "interrupted: these are the results until then");
  all.verify = options.verify;
  all.settings = SettingsOf(*flags.app);
  all.mix_json = load::MixToJson(mix);
  all.begin_time = begin_time;
  all.memory_bytes_per_second = bandwidth;
  return flags.output.Deliver(session, all, baseline);
}

absl::Status Merge(const LoadFlags& flags, Session& session) {
  for (const CLI::Option* option : flags.app->get_options()) {
    if (option->count() > 0 && option->get_group() != LoadOutput::kGroup) {
      return UsageError(absl::StrCat(option->get_name(), ": not allowed with merge, which makes no calls"));
    }
  }
  POSENC_ASSIGN_OR_RETURN(const load::Baseline baseline, flags.output.Check());
  std::optional<Results> all;
  for (const std::string& path : flags.merge) {
    POSENC_ASSIGN_OR_RETURN(Results results, ReadResults(path));
    if (all) {
      all->Merge(results);
    } else {
      all = std::move(results);
    }
  }
  return flags.output.Deliver(session, *all, baseline);
}

}  // namespace

Subcommand AddLoad(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("load", "Runs a load test on a server");
  const auto flags = std::make_shared<LoadFlags>();
  flags->app = app;
  flags->work.Add(*app);
  flags->schedule.Add(*app);
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
