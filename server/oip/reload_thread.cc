#include "server/oip/reload_thread.h"

#include <exception>
#include <string>
#include <utility>

#include "posenc/base/interruption.h"
#include "server/core/log.h"

namespace posenc::server {

ReloadThread::ReloadThread(std::function<absl::Status()> reload)
    : reload_(std::move(reload)), thread_([this] { Run(); }) {}

ReloadThread::~ReloadThread() {
  Stop(std::chrono::milliseconds(0));
  thread_.join();
}

void ReloadThread::Ask() {
  const std::lock_guard lock(mutex_);
  asked_ = true;
  changed_.notify_all();
}

bool ReloadThread::Stop(std::chrono::milliseconds time) {
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
  try {
    const absl::Status status = RunInterruptibly(cancelled, reload_);
    Log(status.ok() ? LogLevel::info : LogLevel::err, "models read",
        {{"status", status.ok() ? "OK" : std::string(status.message())}});
  } catch (const std::exception& error) {  // out of memory
    LogException("models read", error);
  }
}

}  // namespace posenc::server
