#include "server/shared_memory/side_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <exception>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "server/core/log.h"
#include "server/core/unix_socket.h"

namespace posenc::server {
namespace {

constexpr size_t kMostPacketBytes = 4096;
constexpr int kPauseMilliseconds = 100;  // after a failure, e.g. when descriptors or memory are exhausted

// True for a file in memory, which close() does not wait for: no other file has seals.
bool IsInMemory(const Descriptor& file) { return fcntl(file.get(), F_GET_SEALS) >= 0; }

}  // namespace

absl::StatusOr<std::unique_ptr<SideSocket>> SideSocket::Start(const std::string& path, const std::string& prefix,
                                                              SharedMemoryRegistry* registry, const Devices* devices) {
  std::unique_ptr<SideSocket> side(new SideSocket(path, prefix, registry, devices));
  POSENC_ASSIGN_OR_RETURN(side->listener_, ListenForPackets("--shared-memory-socket", path));
  struct stat status = {};
  stat(path.c_str(), &status);
  side->file_ = {status.st_dev, status.st_ino};
  side->stop_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  if (!side->stop_.valid()) return absl::InternalError("cannot create an eventfd");
  side->thread_ = std::thread([server = side.get()] { server->Serve(); });
  return side;
}

SideSocket::~SideSocket() {
  if (!thread_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  thread_.join();
  // Remove the socket's file, unless another server has replaced it meanwhile.
  struct stat status = {};
  if (stat(path_.c_str(), &status) == 0 && file_ == std::pair(status.st_dev, status.st_ino)) unlink(path_.c_str());
}

void SideSocket::Serve() {
  for (bool more = true; more;) {
    try {
      more = ServeOnce();
    } catch (const std::exception& error) {  // out of memory
      LogCall(LogLevel::err, "side socket", {{"error", error.what()}});
      pollfd stop = {stop_.get(), POLLIN, 0};
      more = poll(&stop, 1, kPauseMilliseconds) <= 0;
    }
  }
}

bool SideSocket::ServeOnce() {
  std::vector<pollfd> waiting = {{stop_.get(), POLLIN, 0}, {paused_ ? -1 : listener_.get(), POLLIN, 0}};
  for (const Connection& connection : connections_) waiting.push_back({connection.socket.get(), POLLIN, 0});
  if (poll(waiting.data(), waiting.size(), paused_ ? kPauseMilliseconds : -1) < 0) {
    if (errno == EINTR) return true;
    throw std::system_error(errno, std::generic_category(), "poll");
  }
  if (waiting[0].revents != 0) return false;
  size_t n = 2;
  for (auto connection = connections_.begin(); connection != connections_.end(); ++n) {
    const bool over = waiting[n].revents != 0 && !ServePacket(&*connection);
    connection = over ? connections_.erase(connection) : std::next(connection);
  }
  paused_ = waiting[1].revents != 0 && !Accept();
  return true;
}

bool SideSocket::Accept() {
  Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) return !IsOutOfDescriptors(errno);
  absl::Status status;
  if (!IsTrusted(socket)) {
    status = absl::PermissionDeniedError("only processes of the server's user and of root may register memory");
  } else if (connections_.size() >= kMostConnections) {
    status = TooLarge("", absl::StrCat(connections_.size(), " connections"),
                      absl::StrCat("must be at most ", kMostConnections));
  } else {
    connections_.emplace_back(std::move(socket), registry_, prefix_, devices_);
    return true;
  }
  SendPacket(socket, Registrar::ErrorPacket(status));
  return true;
}

bool SideSocket::ServePacket(Connection* connection) {
  try {
    const bool full = closer_.is_full();
    absl::StatusOr<Packet> packet = ReceivePacket(connection->socket, kMostPacketBytes, /*descriptors=*/!full);
    if (!packet.ok()) return absl::IsUnavailable(packet.status());
    bool goes_on = false;
    if (packet->cut) {
      const std::string limit =
          full ? absl::StrCat("must be without descriptors while ", Closer::kMostWaiting, " wait to be closed")
               : absl::StrCat("must be at most ", kMostPacketBytes, " bytes and one descriptor");
      SendPacket(connection->socket, Registrar::ErrorPacket(TooLarge(kWholeRequest, "", limit)));
    } else if (!packet->bytes.empty()) {
      goes_on = SendPacket(connection->socket, connection->registrar.Answer(packet->bytes, packet->descriptors));
    }
    for (Descriptor& descriptor : packet->descriptors) {
      if (!IsInMemory(descriptor)) closer_.Close(std::move(descriptor));
    }
    return goes_on;
  } catch (const std::exception& error) {
    Log(LogLevel::err, "side socket", {{"error", error.what()}});
    return false;
  }
}

}  // namespace posenc::server
