// Reports the connections that the server cuts for one reason: in a metric, and in the log.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "prometheus/counter.h"
#include "prometheus/registry.h"
#include "server/core/log.h"

namespace posenc::server {

class CutConnections {
 public:
  // `reason` is the metric's label, `line` the line of the log.
  CutConnections(prometheus::Registry* registry, const std::string& reason, std::string line)
      : counter_(prometheus::BuildCounter()
                     .Name("posenc_cut_connections_total")
                     .Help("Connections ended by the server because of their calls, by why.")
                     .Register(*registry)
                     .Add({{"reason", reason}})),
        line_(std::move(line)) {}

  // Logs at most one line a second, because the lines about calls, which have a limit, may be used up by calls of the
  // same connections. `last_peer` may be empty. Thread-safe.
  void Count(size_t connections, const std::string& last_peer) {
    if (connections == 0) return;
    counter_.Increment(static_cast<double>(connections));
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    since_line_ += static_cast<int64_t>(connections);
    if (now < next_line_) return;
    next_line_ = now + std::chrono::seconds(1);
    LogFields fields = {{"number", std::exchange(since_line_, 0)}};
    if (!last_peer.empty()) fields.emplace_back("last_peer", last_peer);
    Log(LogLevel::warn, line_, fields);
  }

 private:
  prometheus::Counter& counter_;
  const std::string line_;
  std::mutex mutex_;  // guards the members below
  int64_t since_line_ = 0;
  std::chrono::steady_clock::time_point next_line_;
};

}  // namespace posenc::server
