// Shared memory that callers register by names of their own, as the Open Inference Protocol has it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/v1/tensor.pb.h"
#include "server/shared_memory/registry.h"

namespace posenc::server {

// A caller chooses its names, which others can guess. So names belong to a scope: callers see and unregister only those
// of their own scope. A name stays registered until it is unregistered, because gRPC does not say when a caller is
// gone; the registry limits their number and bytes, and may give them half of its limits only. Thread-safe.
class NamedMemory {
 public:
  struct Region {
    std::string name;
    std::string key;  // name of the POSIX object
    uint64_t offset;
    uint64_t byte_size;
    std::string token;  // of the registry
  };

  // `prefix`: required beginning of keys; empty: nothing can be registered. The registry must outlive it; null if the
  // prefix is empty.
  NamedMemory(SharedMemoryRegistry* registry, std::string prefix) : registry_(registry), prefix_(std::move(prefix)) {}
  ~NamedMemory();

  bool is_on() const { return !prefix_.empty(); }
  // Changes after each change of the regions: what was found before may be another region now.
  uint64_t changes() const { return changes_; }

  // Triton's codes: UNIMPLEMENTED if nothing can be registered, ALREADY_EXISTS for a name in use, INTERNAL for an
  // object that cannot be opened. Else INVALID_ARGUMENT or RESOURCE_EXHAUSTED as the registry and OpenPosix() have it.
  absl::Status Register(const std::string& scope, const Region& region);
  // Calls that use the memory keep it mapped. Without a name: all of the scope. UNIMPLEMENTED for a name if nothing can
  // be registered, as with Triton.
  absl::Status Unregister(const std::string& scope, const std::string& name);
  // The regions of a scope, or the one of this name; NOT_FOUND if there is none.
  absl::StatusOr<std::vector<Region>> List(const std::string& scope, const std::string& name) const;
  // Returns a part of a region. NOT_FOUND for an unknown name, INVALID_ARGUMENT for a part that is not within it.
  absl::StatusOr<v1::Region> Part(const std::string& scope, const std::string& name, int64_t offset,
                                  int64_t byte_size) const;

 private:
  using Key = std::pair<std::string, std::string>;  // scope and name

  SharedMemoryRegistry* const registry_;
  const std::string prefix_;
  std::atomic<uint64_t> changes_{0};
  mutable std::mutex mutex_;
  std::map<Key, Region> regions_;  // guarded by mutex_
};

}  // namespace posenc::server
