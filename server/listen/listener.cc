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
#include <optional>
#include <unordered_set>
#include <utility>

#include "posenc/base/status.h"
#include "server/core/log.h"
#include "server/core/short_slices.h"
#include "server/core/unix_socket.h"
#include "server/listen/polls.h"
#include "server/listen/read_times.h"

namespace posenc::server {
namespace {

// Before the next accept() when descriptors are exhausted, and at most between looks at the receiving threads.
constexpr std::chrono::milliseconds kPause(100);
constexpr std::chrono::milliseconds kPace(20);  // between looks at the connections that wait to begin
constexpr size_t kNewest = 4;                   // of so many that have waited to begin, one is the newest
constexpr size_t kMostAtOnce = 64;              // connections of one socket before the others get their turn
// Connections take turns after so many calls, while some are paused, or if the receiving threads have not polled for
// kLong, at most every kTurn. A look at a connection takes up to a microsecond, so that looks take at most a tenth of
// this thread's time.
constexpr uint64_t kCallsBetweenTurns = 16;
constexpr std::chrono::milliseconds kLong(2);
constexpr std::chrono::milliseconds kTurn(5), kIdleTurn(1);
constexpr std::chrono::nanoseconds kTurnOfConnection(10'000);

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
  for (const std::string& address : listener->options_.addresses) {
    POSENC_ASSIGN_OR_RETURN(std::vector<ListeningSocket> sockets, ListenAt(address, "--listen"));
    for (ListeningSocket& socket : sockets) {
      if (listener->port_ == 0) listener->port_ = socket.port;
      listener->sockets_.push_back(std::move(socket));
    }
  }
  if (const std::string& proxy = listener->options_.trusted_proxy; !proxy.empty()) {
    POSENC_ASSIGN_OR_RETURN(std::vector<ListeningSocket> sockets, ListenAt(proxy, "--trusted-proxy", Access::kPrivate));
    listener->sockets_.push_back(std::move(sockets.front()));
    listener->last_is_proxy_ = true;
  }
  listener->stop_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  listener->busy_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listener->stop_.valid() || !listener->busy_.valid()) return absl::InternalError("cannot create an eventfd");
  return listener;
}

void Listener::Start(Accept accept, std::function<double()> receiving_seconds,
                     std::function<std::chrono::steady_clock::duration()> since_poll) {
  accept_ = std::move(accept);
  receiving_seconds_ = std::move(receiving_seconds);
  since_poll_ = std::move(since_poll);
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
  AskForShortSlices();
  std::vector<pollfd> waiting = {{stop_.get(), POLLIN, 0}, {busy_.get(), POLLIN, 0}};
  const size_t kOwn = waiting.size();
  for (const ListeningSocket& socket : sockets_) waiting.push_back({socket.socket.get(), POLLIN, 0});
  for (;;) {
    // While descriptors are exhausted, only our own events are polled: the sockets would be ready all the time.
    const bool paused = out_of_descriptors_;
    std::chrono::milliseconds timeout = waiting_.empty() ? kPause : kPace;
    if (turns_are_due_) timeout = std::min(timeout, UntilTurns());
    waiting[1].events = turns_are_due_ ? 0 : POLLIN;
    if (poll(waiting.data(), paused ? kOwn : waiting.size(), static_cast<int>(timeout.count())) < 0) {
      if (errno != EINTR) std::this_thread::sleep_for(kPause);  // the system has no memory for it
      continue;
    }
    const bool stopped = waiting[0].revents != 0;
    if (waiting[1].revents != 0) {
      eventfd_t count = 0;
      turns_are_due_ = eventfd_read(busy_.get(), &count) == 0;
      is_busy_ = false;
    }
    // Not all that keeps the receiving threads is counted when it comes.
    turns_are_due_ |= since_poll_() >= kLong;
    try {
      BeginWaiting();
      TakeTurns();
    } catch (const std::exception& error) {  // out of memory
      LogCall(LogLevel::err, "open connections", {{"error", error.what()}});
    }
    for (size_t n = 0; n < sockets_.size(); ++n) {
      if (!stopped && !paused && waiting[n + kOwn].revents == 0) continue;
      const size_t most = stopped ? SOMAXCONN : kMostAtOnce;
      if (!AcceptWaiting(sockets_[n], most)) break;
    }
    if (!stopped) continue;
    turns_.ResumeAll();
    return waiting_.clear();  // no call has come over them
  }
}

std::chrono::milliseconds Listener::UntilTurns() const {
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next_turns_ - std::chrono::steady_clock::now());
  return std::clamp(wait, std::chrono::milliseconds(0), turns_.paused() > 0 ? kIdleTurn : kPause);
}

void Listener::TakeTurns() {
  const auto now = std::chrono::steady_clock::now();
  const auto since_poll = since_poll_();
  const bool idles = turns_.paused() > 0 && since_poll == std::chrono::steady_clock::duration(0);
  if (!turns_are_due_ || now < (idles ? next_turns_if_idle_ : next_turns_)) return;
  next_turns_ = now + kTurn;
  next_turns_if_idle_ = now + kIdleTurn;
  std::unique_lock lock(mutex_);
  std::vector<Connections::Open> open = connections_.ListOpen();
  lock.unlock();
  std::unordered_set<int> not_begun;
  for (const Waiting& waiting : waiting_) not_begun.insert(waiting.connection.get());
  std::erase_if(open, [&](const Connections::Open& connection) { return not_begun.contains(connection.descriptor); });
  next_turns_ = std::max(next_turns_, now + static_cast<int64_t>(open.size()) * kTurnOfConnection);
  const double seconds = receiving_seconds_();
  turns_are_due_ =
      turns_.Take(open, {received_.Take(), seconds - std::exchange(received_seconds_, seconds), since_poll}, now) ||
      since_poll >= kLong;
  if (!turns_are_due_) next_turns_ += kTurn;
  if ((!turns_.level() && turns_.paused() == 0) || now < next_turns_line_) return;
  next_turns_line_ = now + std::chrono::seconds(10);
  LogFields fields = {{"busiest_peer", NameOf(turns_.busiest())}, {"paused", static_cast<int64_t>(turns_.paused())}};
  if (turns_.level()) fields.push_back({"calls_per_second_of_a_peer", static_cast<int64_t>(*turns_.level())});
  Log(turns_.level() ? LogLevel::warn : LogLevel::info, "connections take turns", fields);
}

void Listener::CountReceived(const std::string& connection, size_t calls) {
  const bool is_due = received_.Add(connection, calls) % kCallsBetweenTurns < calls;
  if (is_due && !is_busy_.exchange(true)) eventfd_write(busy_.get(), 1);
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
    const bool begins = !gone && !late && (state & POLLIN) != 0 && MayBegin(at->peer);
    if (!gone && !late && !begins) continue;
    Waiting next = std::move(*at);
    waiting_.erase(at);
    if (begins) Begin(std::move(next.connection), next.listening, Kind::kTcp, next.peer);
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

Listener::Kind Listener::KindOf(const ListeningSocket& listening) const {
  if (last_is_proxy_ && &listening == &sockets_.back()) return Kind::kTrustedProxy;
  return IsUnix(listening) ? Kind::kUnix : Kind::kTcp;
}

void Listener::Admit(Descriptor connection, const sockaddr_storage& address, const ListeningSocket& listening) {
  const Kind kind = KindOf(listening);
  const bool is_unix = kind != Kind::kTcp;
  if (kind == Kind::kTrustedProxy && !IsTrusted(connection)) {
    ++refused_;
    return LogCall(LogLevel::err, "connection refused",
                   {{"error", "--trusted-proxy: a proxy must run as this user or root"}});
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
    // Urgent bytes, which HTTP/2 does not know, are read like others. Else Linux would not count what is unread.
    setsockopt(connection.get(), SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
    setsockopt(connection.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
    // None overtakes those of its peer that wait.
    if (std::ranges::any_of(waiting_, [&](const Waiting& other) { return other.peer == peer; }) || !MayBegin(peer)) {
      waiting_.push_back({std::move(connection), listening.socket.get(), peer, std::chrono::steady_clock::now()});
      return LogWaiting(address);
    }
  }
  Begin(std::move(connection), listening.socket.get(), kind, peer);
}

bool Listener::MayBegin(Peer peer) {
  return (!turns_.IsLimited(peer) || new_of_limited_.Begin(peer)) && handshakes_.Begin(peer);
}

void Listener::Begin(Descriptor connection, int listening, Kind kind, Peer peer) {
  BeginReads(connection.get());
  if (turns_.IsLimited(peer)) {
    turns_.Add(connection.get());
    turns_are_due_ = true;
  }
  const PollLater later;
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
                                           : "--trusted-proxy"},
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

size_t Listener::Cut(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return connections_.Cut(PeerOf(name), PortOf(name));
}

size_t Listener::CutStuck(const std::set<Peer>& peers, size_t most) {
  const std::lock_guard lock(mutex_);
  return connections_.CutStuck(peers, most);
}

}  // namespace posenc::server
