#include "posenc/base/fork.h"

#include <pthread.h>

#include <utility>

namespace posenc {
namespace {

// Initialized before and destroyed after all objects that register: both are trivial.
constinit std::mutex registry_mutex;
constinit ForkGuard* first_guard = nullptr;  // guarded by registry_mutex

[[maybe_unused]] const int handlers_registered =
    pthread_atfork(&ForkGuard::BeforeFork, &ForkGuard::AfterForkInParent, &ForkGuard::AfterForkInChild);

}  // namespace

ForkGuard::ForkGuard(std::mutex* mutex, std::function<void()> in_child)
    : mutex_(mutex), in_child_(std::move(in_child)) {
  const std::lock_guard lock(registry_mutex);
  next_ = first_guard;
  if (next_ != nullptr) next_->previous_ = this;
  first_guard = this;
}

ForkGuard::~ForkGuard() {
  const std::lock_guard lock(registry_mutex);
  (previous_ != nullptr ? previous_->next_ : first_guard) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

void ForkGuard::BeforeFork() {
  registry_mutex.lock();
  for (ForkGuard* guard = first_guard; guard != nullptr; guard = guard->next_) guard->mutex_->lock();
}

void ForkGuard::AfterForkInParent() {
  for (ForkGuard* guard = first_guard; guard != nullptr; guard = guard->next_) guard->mutex_->unlock();
  registry_mutex.unlock();
}

void ForkGuard::AfterForkInChild() {
  for (ForkGuard* guard = first_guard; guard != nullptr; guard = guard->next_) {
    guard->in_child_();
    guard->mutex_->unlock();
  }
  registry_mutex.unlock();
}

}  // namespace posenc
