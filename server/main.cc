#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "posenc/kernels/target.h"
#include "server/core/config.h"
#include "server/core/log.h"
#include "server/core/signals.h"
#include "server/grpc/server.h"

namespace {

using namespace posenc;          // NOLINT
using namespace posenc::server;  // NOLINT

constexpr int kUsage = 2;  // a flag or a variable is wrong

int Fail(const std::string& why) {
  std::cerr << "posenc-server: " << why << '\n';
  return EXIT_FAILURE;
}

// Lets the server check its state. A lack of memory for that must not end it.
void Maintain(Server* server) {
  try {
    server->Maintain();
  } catch (const std::exception& error) {
    LogException("the state was not checked", error);
  }
}

// Waits for a signal to stop and returns it. SIGHUP makes the server read its models again. Meanwhile it lets the
// server check its state, and returns freed heap memory to the system once the server has been idle for a while: malloc
// keeps it for the next call, not for ever.
int Wait(Signals* signals, Server* server) {
  constexpr std::chrono::seconds kIdle{5};
  constexpr int64_t kManyConnections = 64;
  int64_t started = 0, ended_connections = 0;
  bool used = false;
  for (;;) {
    if (const auto signal = signals->Wait(kIdle)) {
      if (*signal != SIGHUP) return *signal;
      server->ReadModels();
    }
    Maintain(server);
    const Admission::Counters now = server->counters();
    const bool idle = now.in_flight_requests == 0 && now.started == started;
    const int64_t ended = server->CountEndedConnections();
    if (idle && (used || ended >= ended_connections + kManyConnections)) {
      ReturnFreedMemory();
      ended_connections = ended;
    }
    used = !idle;
    started = now.started;
  }
}

// Writes the port to a file. A new file appears with its contents, for scripts that wait for it.
bool WritePort(const std::string& path, int port) {
  std::error_code error;
  const bool is_new = !std::filesystem::exists(path, error);
  const std::string written = is_new ? path + ".new" : path;
  std::ofstream file(written);
  if (!(file << port << std::endl)) return false;
  if (is_new) std::filesystem::rename(written, path, error);
  return !error;
}

// The terminate handler while the server starts. An exception then is one of a thread or memory that the system
// refuses. The process ends without destructors: gRPC's would wait for its own threads, which may be lacking too.
[[noreturn]] void FailToStart() {
  std::string what = "no exception";
  try {
    if (const std::exception_ptr thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    what = error.what();
  }
  Fail("cannot start: " + what +
       "; allow it more threads and memory (ulimit -u, ulimit -v, limits of the cgroup), or " +
       "lower --threads and --io-threads");
  std::_Exit(EXIT_FAILURE);
}

int Run(std::unique_ptr<Server> server, const Config& config, int64_t descriptors, Signals* signals) {
  LogFields fields = {{"port", server->port()},
                      {"http_port", server->http_port()},
                      {"metrics_port", server->metrics_port()},
                      {"health_port", server->health_port()},
                      {"models", server->ReadyModels()},
                      {"cpu_target", CpuTarget()},
                      {"descriptors", descriptors}};
  for (const auto& [name, value] : Describe(config)) fields.emplace_back(name, value);
  Log(LogLevel::info, "serving", fields);
  FlushLog(std::chrono::milliseconds(100));  // before anyone waits for the port
  if (!config.port_file.empty() && !WritePort(config.port_file, server->port()))
    return Fail("cannot write --port-file " + config.port_file);

  const int signal = Wait(signals, server.get());
  Log(LogLevel::info, "draining", {{"signal", signal}});
  const bool answered = server->Drain();
  const int exit_status = answered ? EXIT_SUCCESS : EXIT_FAILURE;
  const bool has_ended = server->EndFiles();
  if (!has_ended) Log(LogLevel::warn, "files are still read or closed; their file system hangs", {});
  Log(LogLevel::info, "stopped", {{"all_answered", answered}});
  if (!has_ended) {  // the threads that do so cannot be ended, and use the server
    FlushLog(std::chrono::seconds(1));
    std::_Exit(exit_status);
  }
  return exit_status;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader of the log that goes away must not end the server
  const std::terminate_handler usual_handler = std::set_terminate(FailToStart);
  Signals signals;
  CountGmpMemory();
  // Debian's Abseil has the checks of a debug build: at each lock, gRPC's too, it searches for cycles of locks. That is
  // a tenth of a short call's instructions.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  if (const absl::Status status = ForceCpuTargetFromEnvironment(); !status.ok()) {
    Fail(std::string(status.message()));
    return kUsage;
  }
  Machine machine = ThisMachine();
  machine.descriptors = RaiseDescriptorLimit();
  if (const int64_t limit = VirtualMemoryLimit(); limit < std::numeric_limits<int64_t>::max()) {
    if (limit < kLeastVirtualMemory) {
      return Fail("the limit of virtual memory (ulimit -v) is " + std::to_string(limit) +
                  " bytes; it must be at least " + std::to_string(kLeastVirtualMemory));
    }
    machine.virtual_memory_bytes = limit;
    // Half of it is for registered regions, code, stacks, and heaps that are not full.
    machine.memory_bytes = machine.memory_bytes == 0 ? limit / 2 : std::min(machine.memory_bytes, limit / 2);
  }
  const ParsedArguments arguments = ArgumentParser().Parse(argc, argv, machine);
  if (!arguments.config) {
    (arguments.exit_status == 0 ? std::cout : std::cerr) << arguments.text;
    return arguments.exit_status;
  }
  const Config& config = *arguments.config;
  StartLog({.format = config.log_format == "json" ? LogFormat::kJson : LogFormat::kText,
            .level = config.log_level,
            .max_call_lines_per_second = config.max_call_log_lines});
  for (const std::string& name : arguments.unknown_variables) {
    Log(LogLevel::warn, "ignored: no such setting", {{"variable", name}});
  }
  KeepFreedMemory(config.answer_pool_bytes);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(config);
  std::set_terminate(usual_handler);
  const int exit_status = server.ok() ? Run(*std::move(server), config, machine.descriptors, &signals)
                                      : Fail(std::string(server.status().message()));
  FlushLog(std::chrono::seconds(1));
  return exit_status;
}
