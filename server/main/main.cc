#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <limits>

#include "posenc/kernels/target.h"
#include "server/config.h"
#include "server/log.h"
#include "server/server.h"
#include "server/signals.h"

namespace {

using namespace posenc;          // NOLINT
using namespace posenc::server;  // NOLINT

int Fail(const std::string& why) {
  std::cerr << "posenc-server: " << why << '\n';
  return EXIT_FAILURE;
}

// gRPC takes a large request apart into thousands of small pieces. By default the C library gives their memory back
// after each call, and has it filled with fresh pages for the next; and it keeps as many heaps as there are threads,
// each with holes of its own.
void KeepMemory(const Config& config) {
#ifdef __GLIBC__
  constexpr int kMiB = 1 << 20, kHeaps = 2;
  mallopt(M_TRIM_THRESHOLD,
          static_cast<int>(std::min<int64_t>(config.answer_pool_bytes, std::numeric_limits<int>::max())));
  mallopt(M_TOP_PAD, static_cast<int>(std::clamp<int64_t>(config.answer_pool_bytes / 16, 0, 16 * kMiB)));
  mallopt(M_ARENA_MAX, kHeaps);
#endif
}

// Until a signal comes, which is returned. What calls have left in the C library's heaps goes back to the system once
// the server has been idle for a while: it is kept for the next call, not for ever.
int Wait(const Server& server, StopSignals* stop) {
  constexpr std::chrono::seconds kIdle{5};
  int64_t started = 0;
  bool used = false;
  for (;;) {
    if (const auto signal = stop->Wait(kIdle)) return *signal;
    const Admission::Counters now = server.counters();
    const bool idle = now.in_flight_requests == 0 && now.started == started;
#ifdef __GLIBC__
    if (idle && used) malloc_trim(0);
#endif
    used = !idle;
    started = now.started;
  }
}

int Run(const Config& config, StopSignals* stop) {
  auto server = Server::Start(config);
  if (!server.ok()) return Fail(std::string(server.status().message()));
  LogFields fields = {{"port", (*server)->port()}, {"cpu_target", CpuTarget()}};
  for (const auto& [name, value] : Describe(config)) fields.emplace_back(name, value);
  Log(LogLevel::info, "serving", fields);
  if (!config.port_file.empty()) {
    std::ofstream file(config.port_file);
    if (!(file << (*server)->port() << std::endl)) return Fail("cannot write --port-file " + config.port_file);
  }

  const int signal = Wait(**server, stop);
  Log(LogLevel::info, "draining", {{"signal", signal}});
  const bool answered = (*server)->Drain();
  Log(LogLevel::info, "stopped", {{"all_answered", answered}});
  return answered ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  StopSignals stop;
  if (const absl::Status status = ForceCpuTargetFromEnvironment(); !status.ok()) {
    return Fail(std::string(status.message()));
  }
  const ParsedArguments arguments = ParseArguments(argc, argv, ThisMachine());
  if (!arguments.config) {
    (arguments.exit_status == 0 ? std::cout : std::cerr) << arguments.text;
    return arguments.exit_status;
  }
  StartLog(arguments.config->log_format == "json" ? LogFormat::kJson : LogFormat::kText, arguments.config->log_level);
  for (const std::string& name : arguments.unknown_variables) {
    Log(LogLevel::warn, "ignored: no such setting", {{"variable", name}});
  }
  KeepMemory(*arguments.config);
  return Run(*arguments.config, &stop);
}
