#include "server/listen/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "posenc/base/status.h"
#include "server/core/log.h"
#include "server/core/unix_socket.h"

namespace posenc::server {
namespace {

constexpr std::chrono::milliseconds kPause(100);  // before the next accept() when descriptors are exhausted
constexpr std::chrono::milliseconds kPace(20);    // between looks at the connections that wait to begin
constexpr std::chrono::milliseconds kForever(-1);
constexpr size_t kNewest = 4;       // of so many that have waited to begin, one is the newest
constexpr size_t kMostAtOnce = 64;  // connections of one socket before the others get their turn
bool IsUnix(const ListeningSocket& listening) { return !listening.path.empty(); }

std::string HostOf(const sockaddr_storage& address) {
  char host[NI_MAXHOST] = "";
  const int error = getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof(address), host, sizeof(host),
                                nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? host : "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Listen(Options options) {
  std::unique_ptr<Listener> listener(new Listener(std::move(options)));
  const auto listen = [&](const std::string& address, std::string_view flag, bool is_http,
                          Access access) -> absl::StatusOr<int> {
    POSENC_ASSIGN_OR_RETURN(std::vector<ListeningSocket> sockets, ListenAt(address, flag, access));
    const int port = sockets.front().port;
    for (ListeningSocket& socket : sockets) {
      socket.is_http = is_http;
      socket.is_of_proxy = access == Access::kPrivate;
      listener->sockets_.push_back(std::move(socket));
    }
    return port;
  };
  const Options& with = listener->options_;
  for (const std::string& address : with.addresses) {
    POSENC_ASSIGN_OR_RETURN(const int port, listen(address, "--listen", false, Access::kByUmask));
    if (listener->port_ == 0) listener->port_ = port;
  }
  for (const std::string& address : with.http_addresses) {
    POSENC_ASSIGN_OR_RETURN(const int port, listen(address, with.http_flag, true, Access::kByUmask));
    if (listener->http_port_ == 0) listener->http_port_ = port;
  }
  if (!with.trusted_proxy.empty()) {
    POSENC_RETURN_IF_ERROR(listen(with.trusted_proxy, "--trusted-proxy", false, Access::kPrivate).status());
  }
  if (!with.http_trusted_proxy.empty()) {
    POSENC_RETURN_IF_ERROR(listen(with.http_trusted_proxy, "--http-trusted-proxy", true, Access::kPrivate).status());
  }
  listener->stop_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  if (!listener->stop_.valid()) return absl::InternalError("cannot create an eventfd");
  return listener;
}

void Listener::Start(Accept accept) {
  accept_ = std::move(accept);
  thread_ = std::thread([this] { Serve(); });
}

void Listener::Close() {
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  for (const ListeningSocket& socket : sockets_) RemoveFileOf(socket);
  sockets_.clear();
}

void Listener::Serve() {
  std::vector<pollfd> waiting = {{stop_.get(), POLLIN, 0}};
  for (const ListeningSocket& socket : sockets_) waiting.push_back({socket.socket.get(), POLLIN, 0});
  for (;;) {
    // While descriptors are exhausted, only the stop is polled: the sockets would be ready all the time.
    const bool paused = out_of_descriptors_;
    const int timeout = static_cast<int>((!waiting_.empty() ? kPace : paused ? kPause : kForever).count());
    if (poll(waiting.data(), paused ? 1 : waiting.size(), timeout) < 0) {
      if (errno != EINTR) std::this_thread::sleep_for(kPause);  // the system has no memory for it
      continue;
    }
    const bool stopped = waiting[0].revents != 0;
    try {
      BeginWaiting();
    } catch (const std::exception& error) {  // out of memory
      LogCall(LogLevel::err, "open connections", {{"error", error.what()}});
    }
    for (size_t n = 0; n < sockets_.size(); ++n) {
      if (!stopped && !paused && waiting[n + 1].revents == 0) continue;
      const size_t most = stopped ? SOMAXCONN : kMostAtOnce;
      if (!AcceptWaiting(sockets_[n], most)) break;
    }
    if (stopped) return waiting_.clear();  // no call has come over them
  }
}

void Listener::BeginWaiting() {
  const auto now = std::chrono::steady_clock::now();
  if (waiting_.empty() || now < next_look_) return;
  next_look_ = now + kPace;
  std::vector<std::list<Waiting>::iterator> all;
  std::vector<pollfd> clients;
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    all.push_back(at);
    clients.push_back({at->connection.get(), POLLIN | POLLRDHUP, 0});
  }
  poll(clients.data(), clients.size(), 0);
  // The oldest is next, so that none is overtaken again and again; but each kNewest-th time the newest, because the
  // clients of the oldest may be about to give up.
  for (size_t first = 0, last = all.size(); first < last;) {
    const size_t n = begun_ % kNewest == 0 ? --last : first++;
    const auto at = all[n];
    const short state = clients[n].revents;
    const bool gone = (state & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    const bool late = now - at->since >= options_.handshake_timeout;
    // A connection over which nothing has come gets no turn.
    const bool begins = !gone && !late && (state & POLLIN) != 0 && handshakes_.Begin(at->peer);
    if (!gone && !late && !begins) continue;
    Waiting next = std::move(*at);
    waiting_.erase(at);
    if (begins) accept_(std::move(next.connection), *next.listening, Kind::kTcp);
    begun_ += begins;
    late_ += late;
  }
}

bool Listener::AcceptWaiting(const ListeningSocket& listening, size_t most) {
  for (size_t n = 0; n < most; ++n) {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    Descriptor connection(
        accept4(listening.socket.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) {
      const int error = errno;
      if (IsOutOfDescriptors(error)) {
        SetOutOfDescriptors(true, error);
        return false;
      }
      SetOutOfDescriptors(false, 0);  // accept() takes a descriptor before it looks for a client
      if (error == EAGAIN) break;
      continue;  // the client has gone
    }
    SetOutOfDescriptors(false, 0);
    try {
      Admit(std::move(connection), address, listening);
    } catch (const std::exception& error) {  // out of memory: the connection is closed
      ++refused_;
      LogCall(LogLevel::err, "connection refused", {{"error", error.what()}});
    }
  }
  return true;
}

void Listener::Admit(Descriptor connection, const sockaddr_storage& address, const ListeningSocket& listening) {
  const Kind kind = listening.is_of_proxy ? Kind::kTrustedProxy : IsUnix(listening) ? Kind::kUnix : Kind::kTcp;
  const bool is_unix = kind != Kind::kTcp;
  if (kind == Kind::kTrustedProxy && !IsTrusted(connection)) {
    ++refused_;
    return LogCall(LogLevel::err, "connection refused", {{"error", "a trusted proxy must run as this user or root"}});
  }
  const Peer peer = is_unix ? std::nullopt : PeerOf(address);
  std::unique_lock lock(mutex_);
  const Connections::Verdict verdict = connections_.Add(connection.get(), peer, kind == Kind::kTrustedProxy);
  lock.unlock();
  if (verdict != Connections::Verdict::kAdmitted) {
    ++refused_;
    return LogRefusal(address, kind, verdict == Connections::Verdict::kTooManyOfPeer);
  }
  ++accepted_;
  if (!is_unix) {
    const int on = 1;
    const auto timeout = static_cast<unsigned>(options_.send_timeout.count());
    setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // Urgent bytes, which HTTP/2 does not know, are read like others: AreQuiet() would wait for them otherwise.
    setsockopt(connection.get(), SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
    setsockopt(connection.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
    // None overtakes those of its peer that wait.
    if (std::ranges::any_of(waiting_, [&](const Waiting& other) { return other.peer == peer; }) ||
        !handshakes_.Begin(peer)) {
      waiting_.push_back({std::move(connection), &listening, peer, std::chrono::steady_clock::now()});
      return LogWaiting(address);
    }
  }
  accept_(std::move(connection), listening, kind);
}

void Listener::LogRefusal(const sockaddr_storage& address, Kind kind, bool of_peer) {
  // One line a second: a flood of connections must not use up the lines about calls.
  const auto now = std::chrono::steady_clock::now();
  if (now < next_line_) return;
  next_line_ = now + std::chrono::seconds(1);
  const int64_t refused = refused_;
  Log(LogLevel::warn, "connections refused",
      {{"number", refused - std::exchange(refused_in_lines_, refused)},
       {"last_peer", kind == Kind::kTcp    ? HostOf(address)
                     : kind == Kind::kUnix ? "unix"
                                           : "trusted proxy"},
       {of_peer ? "max_connections_per_peer" : "max_connections",
        of_peer ? options_.max_connections_per_peer : options_.max_connections}});
}

void Listener::LogWaiting(const sockaddr_storage& address) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_waiting_line_) return;
  next_waiting_line_ = now + std::chrono::seconds(10);
  Log(LogLevel::warn, "new connections wait",
      {{"waiting", static_cast<int64_t>(waiting_.size())},
       {"closed", std::exchange(late_, 0)},
       {"last_peer", HostOf(address)}});
}

void Listener::SetOutOfDescriptors(bool out_of_descriptors, int error) {
  if (out_of_descriptors_.exchange(out_of_descriptors) == out_of_descriptors) return;
  if (out_of_descriptors) {
    LogCall(LogLevel::err, "no connection can be accepted", {{"error", TextOf(error)}});
  } else {
    LogCall(LogLevel::info, "connections are accepted again", {});
  }
}

Listener::Counters Listener::counters() {
  const std::lock_guard lock(mutex_);
  return {static_cast<int64_t>(connections_.CountOpen()), accepted_, refused_};
}

bool Listener::AreQuiet() {
  const std::lock_guard lock(mutex_);
  return connections_.AreQuiet();
}

size_t Listener::CloseIdle(const std::set<TcpEnd>& busy) {
  const std::lock_guard lock(mutex_);
  return connections_.CloseIdle(busy);
}

size_t Listener::CutBusy() {
  const std::lock_guard lock(mutex_);
  return connections_.CutBusy();
}

}  // namespace posenc::server
