// Progress of a run on standard error: one line updated in place on a terminal, otherwise one line per second.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "tools/load/clock.h"
#include "tools/load/progress.h"
#include "tools/load/schedule.h"

namespace posenc::load {

class Live {
 public:
  // `progress`: one element per process; not owned.
  Live(const Progress* progress, size_t processes, bool shown);
  ~Live();

  void BeginStep(const StepPlan& plan);
  // Clears the progress line on a terminal and prints `verdict`, or nothing if it is empty.
  void EndStep(const std::string& verdict);

 private:
  struct Snapshot {
    int64_t started = 0, succeeded = 0, failed = 0, skipped = 0;
    std::array<int64_t, Progress::kBuckets> latency = {};
  };
  Snapshot Look() const;
  void Run();
  std::string Line(const Snapshot& now, double interval) const;

  const Progress* const progress_;
  const size_t processes_;
  const bool shown_, terminal_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false, running_ = false;
  StepPlan plan_;
  Clock::time_point begin_, last_;
  Snapshot at_begin_, before_;
  std::thread thread_;
};

}  // namespace posenc::load
