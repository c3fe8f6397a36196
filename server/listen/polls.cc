#include "server/listen/polls.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "server/listen/read_times.h"
#include "server/listen/socket_state.h"

namespace posenc::server {
namespace {

using Clock = std::chrono::steady_clock;

thread_local bool counts = false;
thread_local PollLater* poll_later = nullptr;
thread_local std::vector<int> held;  // by this thread
std::atomic<int> counted{-1};        // the epoll set that threads that count poll
std::atomic<int> waiting{0};         // of these threads
std::atomic<Clock::time_point> polled_at{};

// Sockets whose events are kept from gRPC: those that are hidden, and those that are held.
class HiddenSockets {
 public:
  void Hide(int descriptor) { Insert(descriptor, &hidden_); }
  void Show(int descriptor) { Erase(descriptor, &hidden_); }
  void Hold(int descriptor) { Insert(descriptor, &held_); }
  // Returns true if the socket is not hidden either.
  bool Release(int descriptor) {
    Erase(descriptor, &held_);
    const std::lock_guard lock(mutex_);
    return !hidden_.contains(descriptor);
  }
  // Notes which event of epoll_wait() is of which descriptor.
  void Note(int descriptor, const epoll_event& event) try {
    const std::lock_guard lock(mutex_);
    const auto is_earlier = [&](const auto& socket) {
      return socket.first == descriptor && socket.second != InodeOf(descriptor);
    };
    std::erase_if(hidden_, is_earlier);
    std::erase_if(held_, is_earlier);
    descriptors_[event.data.u64] = descriptor;
  } catch (const std::bad_alloc&) {  // the socket cannot be hidden
  }
  // Removes the events by which gRPC would learn that hidden sockets can be read. Returns the number of the rest.
  int Remove(epoll_event* events, int count) {
    if (!any_ || count <= 0) return count;
    const std::lock_guard lock(mutex_);
    const auto is_nothing = [this](epoll_event& event) {
      if (MustHide(event)) event.events &= ~(EPOLLIN | EPOLLPRI);
      return event.events == 0;
    };
    return static_cast<int>(std::remove_if(events, events + count, is_nothing) - events);
  }

 private:
  using Sockets = std::unordered_map<int, ino_t>;  // inodes by descriptor

  void Insert(int descriptor, Sockets* sockets) {
    const std::lock_guard lock(mutex_);
    (*sockets)[descriptor] = InodeOf(descriptor).value_or(0);
    any_ = true;
  }
  void Erase(int descriptor, Sockets* sockets) {
    const std::lock_guard lock(mutex_);
    sockets->erase(descriptor);
    any_ = !hidden_.empty() || !held_.empty();
  }
  bool MustHide(const epoll_event& event) const {
    if ((event.events & EPOLLIN) == 0 || (event.events & (EPOLLERR | EPOLLHUP)) != 0) return false;
    const auto found = descriptors_.find(event.data.u64);
    if (found == descriptors_.end()) return false;
    const int descriptor = found->second;
    return (hidden_.contains(descriptor) || held_.contains(descriptor)) && !IsClosedByPeer(descriptor);
  }

  std::mutex mutex_;
  std::unordered_map<uint64_t, int> descriptors_;  // by what epoll_wait() returns; gRPC uses the same again and again
  Sockets hidden_, held_;
  std::atomic<bool> any_{false};
};

HiddenSockets& Hidden() {
  static auto* const hidden = new HiddenSockets;  // gRPC's threads may outlive static objects
  return *hidden;
}

}  // namespace

void CountPollsOfThisThread() { counts = true; }

Clock::duration SincePoll() {
  const Clock::time_point at = polled_at;
  if (at == Clock::time_point()) return std::chrono::milliseconds(1);  // gRPC polls on other threads, or otherwise
  return waiting > 0 ? Clock::duration(0) : Clock::now() - at;
}

void HideFromPolls(int descriptor) { Hidden().Hide(descriptor); }

void ShowToPolls(int descriptor) { Hidden().Show(descriptor); }

void HoldFromPolls(int descriptor) {
  if (std::ranges::find(held, descriptor) != held.end()) return;
  held.reserve(held.size() + 1);
  Hidden().Hold(descriptor);
  held.push_back(descriptor);
}

void ShowHeld() {
  for (const int descriptor : held) {
    if (Hidden().Release(descriptor)) Resume(descriptor);
  }
  held.clear();
}

PollLater::PollLater() { poll_later = this; }

PollLater::~PollLater() {
  poll_later = nullptr;
  // gRPC may have closed the connection, and its descriptor may be that of another one.
  if (addition_ && addition_->inode == InodeOf(addition_->descriptor))
    epoll_ctl(addition_->epoll, EPOLL_CTL_ADD, addition_->descriptor, &addition_->event);
}

bool PollLater::Take(int epoll, int descriptor, const epoll_event& event) {
  if (addition_) return false;
  addition_ = {epoll, descriptor, InodeOf(descriptor), event};
  return true;
}

}  // namespace posenc::server

extern "C" {

__attribute__((visibility("default"))) int epoll_ctl(int epoll, int operation, int descriptor,
                                                     epoll_event* event) noexcept {
  namespace server = posenc::server;
  if (operation == EPOLL_CTL_ADD) {
    if (server::poll_later != nullptr && server::poll_later->Take(epoll, descriptor, *event)) return 0;
    server::Hidden().Note(descriptor, *event);
  }
  return static_cast<int>(syscall(SYS_epoll_ctl, epoll, operation, descriptor, event));
}

__attribute__((visibility("default"))) int epoll_wait(int epoll, epoll_event* events, int most, int timeout) {
  namespace server = posenc::server;
  constexpr int kMost = 8;
  server::EndRead();
  if (server::counts) {
    server::counted = epoll;
    ++server::waiting;
  } else if (epoll == server::counted) {
    // While a client takes nothing, another thread of gRPC polls for up to ten seconds. It may not keep those that
    // count from it: they would not be seen to wait.
    timeout = timeout < 0 ? 1 : std::min(timeout, 1);
  }
  const int count = epoll_pwait(epoll, events, std::min(most, kMost), timeout, nullptr);
  if (server::counts) {
    server::polled_at = server::Clock::now();
    --server::waiting;
  }
  return server::Hidden().Remove(events, count);
}
}
