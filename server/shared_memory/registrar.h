// Handler of the requests of one side socket connection.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/service/devices.h"
#include "posenc/v1/shared_memory.pb.h"
#include "server/core/descriptor.h"
#include "server/shared_memory/registry.h"

namespace posenc::server {

// Registers a connection's memory, and unregisters it on destruction. Not thread-safe.
class Registrar {
 public:
  // `prefix`: required prefix of POSIX names (--shared-memory-prefix). Registry and devices must outlive it.
  Registrar(SharedMemoryRegistry* registry, std::string prefix, const Devices* devices)
      : registry_(registry), prefix_(std::move(prefix)), devices_(devices) {}
  ~Registrar();
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  // Serves a SharedMemoryRequest packet and the descriptors that came with it. Returns the SharedMemoryResponse packet,
  // which may be an error (proto/posenc/v1/shared_memory.proto).
  std::string Answer(std::string_view packet, const std::vector<Descriptor>& descriptors);

  // Returns the packet of an error response.
  static std::string ErrorPacket(const absl::Status& status);

 private:
  absl::StatusOr<v1::SharedMemoryResponse> Act(std::string_view packet, const std::vector<Descriptor>& descriptors);
  absl::StatusOr<v1::SharedMemoryResponse> Keep(absl::StatusOr<std::string> token);

  SharedMemoryRegistry* const registry_;
  const std::string prefix_;
  const Devices* const devices_;
  std::vector<std::string> tokens_;
};

}  // namespace posenc::server
