// Runs the steps of a load test with asynchronous calls, many in flight per thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/client/tls.h"
#include "tools/load/mix.h"
#include "tools/load/progress.h"
#include "tools/load/results.h"
#include "tools/load/schedule.h"

namespace posenc::load {

struct RunnerOptions {
  std::vector<std::string> servers;  // gRPC targets, used round-robin
  std::optional<Tls> tls;            // absent: not encrypted
  int connections = 1;               // per server
  int threads = 1;                   // completion-queue threads, >= 1; useful up to the total of connections
  int64_t max_in_flight = 1000;      // limit of open loops, over all processes
  double deadline_seconds = 10;      // per call, from its actual start
  double connect_seconds = 5;        // time limit for connecting at the beginning
  double verify = 0;                 // share of answers to verify, 0 .. 1
  std::string shared_memory_socket;  // path of the server's side socket
  int64_t most_concurrent = 0;       // highest concurrency of the closed loops to run; 0 if open loops
  Share share;                       // this process's share of the calls
};

class Runner {
 public:
  virtual ~Runner() = default;

  // Connects. Returns UNAVAILABLE naming a server that cannot be reached, INVALID_ARGUMENT if the mix is invalid.
  static absl::StatusOr<std::unique_ptr<Runner>> Create(const Mix& mix, const RunnerOptions& options);

  // Runs one step, from its first call to the end of its last; ends early once *stop is set. Returns one step, its
  // timeline, and the server's version. Blocks.
  virtual absl::StatusOr<Results> Run(const StepPlan& plan, const std::atomic<bool>& stop, Progress* progress) = 0;
};

}  // namespace posenc::load
