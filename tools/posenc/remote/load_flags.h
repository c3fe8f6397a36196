// Flags of `posenc load`: calls, schedule, clients. The flags of its results are in load_output.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/load/mix.h"
#include "tools/load/runner.h"
#include "tools/load/schedule.h"
#include "tools/load/search.h"
#include "tools/posenc/messages.h"

namespace posenc::command {

class WorkFlags {
 public:
  void Add(CLI::App& app);
  absl::StatusOr<load::Mix> Get() const;

 private:
  std::string mix_path_, transport_ = "unary", model_;
  load::Entry entry_;
  uint64_t seed_ = 1;
  CLI::Option* seed_option_ = nullptr;
};

class ScheduleFlagGroup {
 public:
  void Add(CLI::App& app);
  void AddMissing(Missing* missing) const;
  bool searches() const { return !objective_.empty(); }
  // Call it only if searches() is false. Returns a usage error if a flag is wrong.
  absl::StatusOr<std::vector<load::StepPlan>> Plans(uint64_t seed) const;

  struct Search {
    load::Objective objective;
    load::SearchOptions options;
    double seconds, warm_up_seconds;
    load::ArrivalKind arrivals;
    bool rate_given;      // otherwise the first rate depends on the peak
    int64_t concurrency;  // of the closed loop that measures the peak
  };
  absl::StatusOr<Search> GetSearch(int64_t peak_concurrency) const;

  struct Overload {
    std::vector<double> factors;  // offered calls per second / peak
    double seconds, warm_up_seconds;
    load::ArrivalKind arrivals;
    int64_t concurrency;
  };
  bool overloads() const { return overload_option_->count() > 0; }
  absl::StatusOr<Overload> GetOverload(int64_t peak_concurrency) const;

 private:
  absl::StatusOr<load::ScheduleFlags> Parsed(uint64_t seed) const;

  std::string rate_, concurrency_, duration_, warm_up_, arrivals_ = "constant", objective_, overload_,
                                                        max_failures_ = "0.1%";
  int64_t count_ = 0, tries_ = 5;
  CLI::Option* overload_option_ = nullptr;
};

class ClientFlags {
 public:
  void Add(CLI::App& app);
  // `server` is the value of --server before the subcommand; used if the group's own --server is absent.
  void AddMissing(const std::string& server, Missing* missing) const;
  absl::StatusOr<load::RunnerOptions> Get(const std::string& server, const std::optional<Tls>& tls) const;
  int processes() const { return processes_; }

 private:
  std::vector<std::string> servers_;
  load::RunnerOptions options_;
  std::string deadline_ = "10s", verify_ = "0";
  int processes_ = 1;
};

}  // namespace posenc::command
