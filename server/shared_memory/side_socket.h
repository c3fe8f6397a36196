// The side socket, at which callers register memory.
#pragma once

#include <sys/types.h>

#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/shared_memory/descriptor.h"
#include "server/shared_memory/registrar.h"

namespace posenc::server {

// Serves on a thread of its own. Its end closes all connections, and with them goes what they have registered.
class SideSocket {
 public:
  static constexpr size_t kMostConnections = 256;

  // INVALID_ARGUMENT naming --shared-memory-socket where it cannot listen. Registry and devices must outlive it.
  static absl::StatusOr<std::unique_ptr<SideSocket>> Start(const std::string& path, const std::string& prefix,
                                                           SharedMemoryRegistry* registry, const Devices* devices);
  ~SideSocket();

 private:
  struct Connection {
    Connection(Descriptor with, SharedMemoryRegistry* registry, const std::string& prefix, const Devices* devices)
        : socket(std::move(with)), registrar(registry, prefix, devices) {}
    Descriptor socket;
    Registrar registrar;
  };

  SideSocket(std::string path, std::string prefix, SharedMemoryRegistry* registry, const Devices* devices)
      : path_(std::move(path)), prefix_(std::move(prefix)), registry_(registry), devices_(devices) {}
  void Serve();
  // Waits for something and does it; false if that is the end.
  bool ServeOnce();
  // False if there is no descriptor left for another connection.
  bool Accept();
  // False if the connection is over.
  static bool ServePacket(Connection* connection);

  const std::string path_;
  const std::string prefix_;
  SharedMemoryRegistry* const registry_;
  const Devices* const devices_;
  std::pair<dev_t, ino_t> file_;  // the socket's own
  Descriptor listener_;
  Descriptor stop_;  // readable: it ends
  std::list<Connection> connections_;
  bool paused_ = false;  // no descriptor was left for another connection
  std::thread thread_;
};

}  // namespace posenc::server
