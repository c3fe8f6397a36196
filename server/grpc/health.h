// grpc.health.v1.Health: whether the server, and each service, is serving.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "server/grpc/polling.h"

namespace posenc::server {

// Outlives the RPCs of its methods. Thread-safe.
class Health {
 public:
  // A service appears, or changes. The empty name is the server as a whole.
  void Set(const std::string& service, bool serving);
  // All are NOT_SERVING from now on, whatever is set.
  void EndServing();

  void AddTo(Methods* methods);

 private:
  class Check;
  class Watch;
  enum class Status { kServing = 1, kNotServing = 2, kUnknownService = 3 };
  // With the lock held.
  Status StatusOf(const std::string& service) const;

  std::mutex mutex_;
  std::map<std::string, Status> services_;
  bool ended_ = false;
  std::set<Watch*> watches_;
};

}  // namespace posenc::server
