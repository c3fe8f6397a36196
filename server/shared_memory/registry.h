// Registry of the shared memory that calls may use, by token.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "posenc/wire/shared_memory.h"
#include "server/shared_memory/mapped_memory.h"

namespace posenc::server {

// Thread-safe. Tokens are secrets: they appear in no message and no log line.
class SharedMemoryRegistry final : public wire::SharedMemorySource {
 public:
  struct Counters {
    int64_t regions = 0;
    int64_t bytes = 0;
  };

  // Says when memory is unregistered: when its connection closes, or by name only.
  enum class Holder { kConnection, kName };

  // If `names_have_half`, memory that names hold may be at most half of each limit, rounded up: it may stay for good,
  // and connections have the rest.
  SharedMemoryRegistry(int64_t max_regions, int64_t max_bytes, bool names_have_half = false);

  // Maps byte_size bytes from `offset` on and returns their token. Returns RESOURCE_EXHAUSTED if that would exceed a
  // limit. Memory counts until it is unmapped, at the latest by the last call that uses it.
  absl::StatusOr<std::string> Register(const Descriptor& file, int64_t byte_size, bool read_only,
                                       Holder holder = Holder::kConnection, int64_t offset = 0);
  // Registers memory on a device and returns its token. It counts as a region, but its bytes do not.
  absl::StatusOr<std::string> RegisterOn(Device* device, std::string_view handle, int64_t byte_size, bool read_only);
  // Returns false if it is not registered. Calls that use the memory keep it mapped.
  bool Unregister(std::string_view token);
  std::shared_ptr<const wire::SharedMemory> Find(std::string_view token) const override;

  Counters counters() const;

 private:
  struct Quota {
    Counters most, used;
    std::string part;  // of the server's limits that this is, for errors: "half of "
    absl::Status Check(int64_t byte_size) const;
    void Add(int64_t regions, int64_t bytes);
  };
  // Shared with registered memory: it outlives the registry if a call does.
  struct Books {
    std::mutex mutex;
    Quota all, names;
  };
  // Counts memory as long as it exists.
  using Place = std::shared_ptr<void>;
  absl::StatusOr<Place> Enter(int64_t byte_size, Holder holder);
  // Stores memory under a new token. It holds its place until it is unmapped.
  absl::StatusOr<std::string> Keep(std::unique_ptr<const wire::SharedMemory> memory, Place place);

  const std::shared_ptr<Books> books_ = std::make_shared<Books>();
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const wire::SharedMemory>, std::less<>> memory_;
};

}  // namespace posenc::server
