// The server's listener: accepts connections on its own thread and limits their number.
//
// gRPC 1.51 could accept them too, but it stops for ever once accept() fails for lack of descriptors, and it limits
// nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/core/descriptor.h"
#include "server/listen/connection_pace.h"
#include "server/listen/connections.h"
#include "server/listen/listening_socket.h"

namespace posenc::server {

class Listener {
 public:
  struct Options {
    std::vector<std::string> addresses;  // as ListenAt() takes them
    std::vector<std::string> http_addresses;
    std::string http_flag = "--http-listen";  // that gives these, for errors
    // unix:PATH, which only this user and root can open; empty: none.
    std::string trusted_proxy, http_trusted_proxy;
    size_t max_connections = 0;
    size_t max_connections_per_peer = 0;
    std::chrono::milliseconds send_timeout{};  // time in which a peer must acknowledge what was sent (TCP_USER_TIMEOUT)
    int64_t handshakes_per_second = 0;         // of one peer over TCP; others wait. 0: no limit
    std::chrono::seconds handshake_timeout{};  // a connection that may not begin in this time is closed
  };
  struct Counters {
    int64_t open = 0;      // now
    int64_t accepted = 0;  // since the start
    int64_t refused = 0;   // closed at once, because of a limit
  };
  enum class Kind { kTcp, kUnix, kTrustedProxy };
  // Takes ownership of a connection. `listening` is the socket that it came to.
  using Accept = std::function<void(Descriptor connection, const ListeningSocket& listening, Kind kind)>;

  // Listens; clients wait until Start(). Errors as ListenAt(), with the flag of the address.
  static absl::StatusOr<std::unique_ptr<Listener>> Listen(Options options);
  ~Listener() { Close(); }

  // The first TCP port; 0 if there is none.
  int port() const { return port_; }
  // The first one for HTTP; 0 if there is none.
  int http_port() const { return http_port_; }

  // Accepts connections from now on and gives them to `accept`.
  void Start(Accept accept);
  // Accepts the connections that already wait, then closes the sockets. Not thread-safe.
  void Close();

  // Thread-safe.
  Counters counters();
  // See Connections. Thread-safe; also after Close().
  bool AreQuiet();
  size_t CloseIdle(const std::set<TcpEnd>& busy);
  size_t CutBusy();
  // False while there are no descriptors for new connections. Thread-safe.
  bool IsAccepting() const { return !out_of_descriptors_; }

 private:
  explicit Listener(Options options)
      : options_(std::move(options)),
        connections_(options_.max_connections, options_.max_connections_per_peer),
        handshakes_(options_.handshakes_per_second) {}
  void Serve();
  // Accepts at most `most` of the connections that wait. Returns false if there is no descriptor or memory for more.
  bool AcceptWaiting(const ListeningSocket& listening, size_t most);
  // Lets the connections begin that need not wait any longer, and closes those that have waited for too long.
  void BeginWaiting();
  void Admit(Descriptor connection, const sockaddr_storage& address, const ListeningSocket& listening);
  void LogRefusal(const sockaddr_storage& address, Kind kind, bool of_peer);
  void LogWaiting(const sockaddr_storage& address);
  void SetOutOfDescriptors(bool out_of_descriptors, int error);

  const Options options_;
  std::vector<ListeningSocket> sockets_;
  int port_ = 0, http_port_ = 0;
  Accept accept_;
  Descriptor stop_;  // eventfd, readable once the thread must end
  std::mutex mutex_;
  Connections connections_;  // guarded by mutex_
  struct Waiting {
    Descriptor connection;
    const ListeningSocket* listening;
    Peer peer;
    std::chrono::steady_clock::time_point since;
  };
  // Used by thread_ only, as all below but the counters:
  // A handshake with client certificates takes long: OpenSSL parses all of them before it refuses one, 20 milliseconds
  // for 8 KiB, the most that the server accepts.
  ConnectionPace handshakes_;
  std::list<Waiting> waiting_;                       // to begin; the newest is the last
  std::chrono::steady_clock::time_point next_look_;  // at waiting_
  size_t begun_ = 0;                                 // that had waited
  int64_t late_ = 0;                                 // closed because they waited too long
  std::atomic<int64_t> accepted_{0}, refused_{0};
  std::atomic<bool> out_of_descriptors_{false};
  std::chrono::steady_clock::time_point next_line_;          // about refused connections
  std::chrono::steady_clock::time_point next_waiting_line_;  // about connections that wait
  int64_t refused_in_lines_ = 0;
  std::thread thread_;
};

}  // namespace posenc::server
