#include "server/listen/polls.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <unordered_map>

#include "server/listen/read_times.h"
#include "server/listen/socket_state.h"

namespace posenc::server {
namespace {

using Clock = std::chrono::steady_clock;

thread_local bool counts = false;
std::atomic<int> counted{-1};  // the epoll set that threads that count poll
std::atomic<int> waiting{0};   // of these threads
std::atomic<Clock::time_point> polled_at{};

class HiddenSockets {
 public:
  void Hide(int descriptor) {
    const std::lock_guard lock(mutex_);
    hidden_[descriptor] = InodeOf(descriptor).value_or(0);
    any_ = true;
  }
  void Show(int descriptor) {
    const std::lock_guard lock(mutex_);
    hidden_.erase(descriptor);
    any_ = !hidden_.empty();
  }
  // Notes which event of epoll_wait() is of which descriptor.
  void Add(int descriptor, const epoll_event& event) try {
    const std::lock_guard lock(mutex_);
    const auto found = hidden_.find(descriptor);
    if (found != hidden_.end() && found->second != InodeOf(descriptor)) hidden_.erase(found);  // of an earlier socket
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
  bool MustHide(const epoll_event& event) const {
    if ((event.events & EPOLLIN) == 0 || (event.events & (EPOLLERR | EPOLLHUP)) != 0) return false;
    const auto descriptor = descriptors_.find(event.data.u64);
    return descriptor != descriptors_.end() && hidden_.contains(descriptor->second) &&
           !IsClosedByPeer(descriptor->second);
  }

  std::mutex mutex_;
  std::unordered_map<uint64_t, int> descriptors_;  // by what epoll_wait() returns; gRPC uses the same again and again
  std::unordered_map<int, ino_t> hidden_;
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

}  // namespace posenc::server

extern "C" {

__attribute__((visibility("default"))) int epoll_ctl(int epoll, int operation, int descriptor,
                                                     epoll_event* event) noexcept {
  if (operation == EPOLL_CTL_ADD) posenc::server::Hidden().Add(descriptor, *event);
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
