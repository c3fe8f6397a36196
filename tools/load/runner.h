// Makes the calls of a step, many in flight without a thread each.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/load/mix.h"
#include "tools/load/progress.h"
#include "tools/load/results.h"
#include "tools/load/schedule.h"

namespace posenc::load {

struct RunnerOptions {
  std::vector<std::string> servers;  // gRPC targets; calls take turns over them
  int connections = 1;               // to each
  int threads = 1;                   // that read from gRPC; >= 1, no use above the connections of all servers
  int64_t max_in_flight = 1000;      // of an open loop
  double deadline_seconds = 10;      // of a call, from its actual start
  double connect_seconds = 5;        // to wait for the servers at the beginning
  double verify = 0;                 // share of the answers, 0 .. 1
  std::string shared_memory_socket;  // the server's
  int64_t most_concurrent = 0;       // of the closed loops to come
  Share share;                       // among several processes
};

class Runner {
 public:
  virtual ~Runner() = default;

  // Connects; UNAVAILABLE names a server that is not there, INVALID_ARGUMENT what is wrong with the mix.
  static absl::StatusOr<std::unique_ptr<Runner>> Create(const Mix& mix, const RunnerOptions& options);

  // One step, from its first call to the end of its last; shorter once *stop. What is measured is one step, its
  // seconds, and the server's version. Blocks.
  virtual absl::StatusOr<Results> Run(const StepPlan& plan, const std::atomic<bool>& stop, Progress* progress) = 0;
};

}  // namespace posenc::load
