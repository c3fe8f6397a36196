#include "server/listen/polls.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "server/listen/read_times.h"
#include "server/listen/socket_state.h"

namespace posenc::server {
namespace {

using Clock = std::chrono::steady_clock;

thread_local bool counts = false;
thread_local PollLater* poll_later = nullptr;
std::atomic<int> counted{-1};  // the epoll set that threads that count poll
std::atomic<int> waiting{0};   // of these threads
std::atomic<Clock::time_point> polled_at{};
// A socket is shown after so long also if the thread that holds it does not poll; and sooner, after this time between
// two looks, if that thread has used less than a tenth of it.
constexpr std::chrono::milliseconds kLongestHold(100), kLook(1);

// Returns the processor time that a thread has used; empty if it has ended.
std::optional<std::chrono::nanoseconds> TimeOf(clockid_t clock) {
  timespec time = {};
  if (clock_gettime(clock, &time) != 0) return std::nullopt;
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// A socket that a thread holds.
class Held {
 public:
  explicit Held(int descriptor) : inode(InodeOf(descriptor).value_or(0)) {
    if (pthread_getcpuclockid(pthread_self(), &clock_) == 0) used_ = TimeOf(clock_).value_or(used_);
  }

  // True if this thread holds it, or the one that does has ended, does nothing, or has held it for long.
  bool MustEnd(Clock::time_point now) {
    if (by_ == std::this_thread::get_id() || now - since_ >= kLongestHold) return true;
    if (now - looked_ < kLook) return false;
    const auto used = TimeOf(clock_);
    if (!used) return true;
    const auto passed = now - std::exchange(looked_, now);
    return *used - std::exchange(used_, *used) < passed / 10;
  }

  ino_t inode;

 private:
  std::thread::id by_ = std::this_thread::get_id();
  clockid_t clock_{};
  std::chrono::nanoseconds used_{};
  Clock::time_point since_ = Clock::now(), looked_ = since_;
};

// Sockets whose events are kept from gRPC: those that are hidden, and those that are held.
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
    any_ = !hidden_.empty() || any_held_;
  }
  void Hold(int descriptor) {
    const std::lock_guard lock(mutex_);
    held_.insert_or_assign(descriptor, Held(descriptor));
    any_ = any_held_ = true;
    // A thread that waits for events must poll again, and then for less time, to see when the hold must end.
    if (!hidden_.contains(descriptor)) Resume(descriptor);
  }
  // Shows what this thread holds, and what others need not hold any longer.
  void ShowHeld() {
    if (!any_held_) return;
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    for (auto at = held_.begin(); at != held_.end();) {
      const int descriptor = at->first;
      if (!at->second.MustEnd(now)) {
        ++at;
        continue;
      }
      if (!hidden_.contains(descriptor) && at->second.inode == InodeOf(descriptor)) Resume(descriptor);
      at = held_.erase(at);
    }
    any_held_ = !held_.empty();
    any_ = !hidden_.empty() || any_held_;
  }
  bool has_held() const { return any_held_; }
  // Notes which event of epoll_wait() is of which descriptor.
  void Note(int descriptor, const epoll_event& event) try {
    const std::lock_guard lock(mutex_);
    const auto inode = InodeOf(descriptor);  // entries with another one are of earlier sockets
    if (const auto hidden = hidden_.find(descriptor); hidden != hidden_.end() && hidden->second != inode)
      hidden_.erase(hidden);
    if (const auto held = held_.find(descriptor); held != held_.end() && held->second.inode != inode) held_.erase(held);
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
    const auto found = descriptors_.find(event.data.u64);
    if (found == descriptors_.end()) return false;
    const int descriptor = found->second;
    return (hidden_.contains(descriptor) || held_.contains(descriptor)) && !IsClosedByPeer(descriptor);
  }

  std::mutex mutex_;
  std::unordered_map<uint64_t, int> descriptors_;  // by what epoll_wait() returns; gRPC uses the same again and again
  std::unordered_map<int, ino_t> hidden_;
  std::unordered_map<int, Held> held_;
  std::atomic<bool> any_{false}, any_held_{false};
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

void HoldFromPolls(int descriptor) { Hidden().Hold(descriptor); }

void ShowHeld() { Hidden().ShowHeld(); }

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
  }
  // While a client takes nothing, another thread of gRPC polls for up to ten seconds. It may not keep those that count
  // from it: they would not be seen to wait. And while a socket is held, the next poll must see when the hold ends.
  const bool is_short = (!server::counts && epoll == server::counted) || server::Hidden().has_held();
  if (is_short) timeout = timeout < 0 ? 1 : std::min(timeout, 1);
  const int count = epoll_pwait(epoll, events, std::min(most, kMost), timeout, nullptr);
  if (server::counts) {
    server::polled_at = server::Clock::now();
    --server::waiting;
  }
  return server::Hidden().Remove(events, count);
}
}
