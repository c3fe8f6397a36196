// What one connection of the side socket asks for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/service/devices.h"
#include "posenc/v1/shared_memory.pb.h"
#include "server/shared_memory/descriptor.h"
#include "server/shared_memory/registry.h"

namespace posenc::server {

// Its memory stays registered for as long as this lives. Not thread-safe.
class Registrar {
 public:
  // `prefix`: of the names that may be registered (--shared-memory-prefix).
  Registrar(SharedMemoryRegistry* registry, std::string prefix, const Devices* devices)
      : registry_(registry), prefix_(std::move(prefix)), devices_(devices) {}
  ~Registrar();
  Registrar(const Registrar&) = delete;
  Registrar& operator=(const Registrar&) = delete;

  // From a packet and the descriptors that came with it to the packet that answers it: a SharedMemoryRequest and a
  // SharedMemoryResponse (proto/posenc/v1/shared_memory.proto).
  std::string Answer(std::string_view packet, std::vector<Descriptor> descriptors);

  // A response that is an error.
  static std::string ErrorPacket(const absl::Status& status);

 private:
  absl::StatusOr<v1::SharedMemoryResponse> Act(std::string_view packet, std::vector<Descriptor> descriptors);
  absl::StatusOr<v1::SharedMemoryResponse> Keep(absl::StatusOr<std::string> token);

  SharedMemoryRegistry* const registry_;
  const std::string prefix_;
  const Devices* const devices_;
  std::vector<std::string> tokens_;
};

}  // namespace posenc::server
