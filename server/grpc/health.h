// grpc.health.v1.Health: whether the server, and each service, is serving.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "server/grpc/completion_queue.h"
#include "server/listen/connections.h"

namespace posenc::server {

// Must outlive the RPCs of its methods. Thread-safe.
class Health {
 public:
  // Adds a service or changes its status, and notifies watches. The empty name is the server as a whole.
  void Set(const std::string& service, bool serving);
  // Reports all services as NOT_SERVING from now on, regardless of Set().
  void EndServing();

  // Watches beyond `most_watches`, or a quarter of them for one peer, are refused (UNAVAILABLE).
  void AddTo(Methods* methods, size_t most_watches);

 private:
  class Check;
  class Watch;
  enum class Status { kServing = 1, kNotServing = 2, kUnknownService = 3 };
  // Requires mutex_.
  Status StatusOf(const std::string& service) const;

  std::mutex mutex_;
  std::map<std::string, Status> services_;
  bool ended_ = false;
  size_t most_watches_ = 0;
  std::set<Watch*> watches_;
  std::map<Peer, size_t> watches_of_;
};

}  // namespace posenc::server
