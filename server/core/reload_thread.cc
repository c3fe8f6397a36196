#include "server/core/reload_thread.h"

#include <exception>
#include <utility>

#include "posenc/base/interruption.h"
#include "server/core/log.h"

namespace posenc::server {

ReloadThread::ReloadThread(std::string failed, std::function<void()> reload)
    : failed_(std::move(failed)), reload_(std::move(reload)), thread_([this] { Run(); }) {}

ReloadThread::~ReloadThread() {
  Stop({});
  thread_.join();
}

void ReloadThread::Ask() {
  const std::lock_guard lock(mutex_);
  asked_ = true;
  changed_.notify_all();
}

bool ReloadThread::Stop(std::chrono::steady_clock::duration time) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  return changed_.wait_for(lock, time, [this] { return ended_; });
}

void ReloadThread::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return asked_ || stopping_; });
    if (stopping_) break;
    asked_ = false;
    lock.unlock();
    Reload();
    lock.lock();
  }
  ended_ = true;
  changed_.notify_all();
}

void ReloadThread::Reload() const {
  const Cancellation cancelled = [this] {
    return stopping_ ? absl::CancelledError("the server ends") : absl::OkStatus();
  };
  const InterruptionScope scope(&cancelled);
  try {
    reload_();
  } catch (const ComputationStopped&) {
  } catch (const std::exception& error) {  // out of memory
    LogException(failed_, error);
  }
}

}  // namespace posenc::server
