// Side socket: the Unix socket at which callers register memory.
#pragma once

#include <sys/types.h>

#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/core/descriptor.h"
#include "server/shared_memory/closer.h"
#include "server/shared_memory/registrar.h"

namespace posenc::server {

// Serves on its own thread. The destructor closes all connections and unregisters their memory.
class SideSocket {
 public:
  static constexpr size_t kMostConnections = 256;

  // Returns INVALID_ARGUMENT naming --shared-memory-socket if it cannot listen. Registry and devices must outlive it.
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
  // Waits for events and handles them. Returns false if it was stopped or poll() failed.
  bool ServeOnce();
  // Returns false if there is no descriptor or memory left for another connection.
  bool Accept();
  // Returns false if the connection is over.
  bool ServePacket(Connection* connection);

  const std::string path_;
  const std::string prefix_;
  SharedMemoryRegistry* const registry_;
  const Devices* const devices_;
  std::pair<dev_t, ino_t> file_;  // device and inode of the socket's file
  Descriptor listener_;
  Descriptor stop_;  // eventfd, readable once the thread must end
  std::list<Connection> connections_;
  bool paused_ = false;  // no descriptor was left for another connection
  Closer closer_;        // of descriptors that came with packets
  std::thread thread_;
};

}  // namespace posenc::server
