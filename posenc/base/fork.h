// Objects with a mutex that stay usable in a forked child, which has no thread but the one that forked.
#pragma once

#include <functional>
#include <mutex>

namespace posenc {

// RAII registration of an object's mutex. While a process forks, the mutex is locked, so that no other thread is within
// its critical section. The child calls `in_child` before the mutex is unlocked there, to drop what only threads of the
// parent would complete. A thread must not lock one such mutex while it holds another. Thread-safe.
class ForkGuard {
 public:
  ForkGuard(std::mutex* mutex, std::function<void()> in_child);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  // Handlers of pthread_atfork.
  static void BeforeFork();
  static void AfterForkInParent();
  static void AfterForkInChild();

 private:
  std::mutex* const mutex_;
  const std::function<void()> in_child_;
  ForkGuard* previous_ = nullptr;
  ForkGuard* next_ = nullptr;
};

}  // namespace posenc
