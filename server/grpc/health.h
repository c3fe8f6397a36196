// grpc.health.v1.Health: whether the server, and each service, is serving.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "server/calls/methods.h"
#include "server/core/fair_limit.h"
#include "server/core/timers.h"

namespace posenc::server {

// Must outlive the RPCs of its methods. Thread-safe.
class Health {
 public:
  // Adds a service or changes its status, and notifies watches. The empty name is the server as a whole.
  void Set(const std::string& service, bool serving);
  // Reports all services as NOT_SERVING from now on, regardless of Set().
  void EndServing();

  // Callers share `most_watches` watches; further ones are refused (UNAVAILABLE). A check whose answer is not taken
  // within `send_timeout` is cancelled. `timers` must outlive the RPCs.
  void AddTo(Methods* methods, size_t most_watches, Timers* timers, std::chrono::seconds send_timeout);

 private:
  class Check;
  class Watch;
  enum class Status { kServing = 1, kNotServing = 2, kUnknownService = 3 };
  // Requires mutex_.
  Status StatusOf(const std::string& service) const;

  std::mutex mutex_;
  std::map<std::string, Status> services_;
  bool ended_ = false;
  std::set<Watch*> watches_;
  std::shared_ptr<FairLimit> watch_limit_;
  Timers* timers_ = nullptr;
  std::chrono::seconds send_timeout_{0};
};

}  // namespace posenc::server
