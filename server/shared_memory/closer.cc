#include "server/shared_memory/closer.h"

#include <utility>

namespace posenc::server {

Closer::~Closer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Closer::Close(Descriptor descriptor) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(descriptor));
  changed_.notify_all();
}

bool Closer::is_full() {
  const std::lock_guard lock(mutex_);
  return waiting_.size() >= kMostWaiting;
}

void Closer::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Descriptor& first = waiting_.front();  // stays where it is while others are added
    lock.unlock();
    first = Descriptor();
    lock.lock();
    waiting_.pop_front();
  }
}

}  // namespace posenc::server
