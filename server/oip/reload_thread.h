// The thread that reads the models again when it is asked to: their file system may hang, and nothing else waits for
// it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/status/status.h"

namespace posenc::server {

class ReloadThread {
 public:
  // `reload` is called on the thread. It may throw; its result is logged.
  explicit ReloadThread(std::function<absl::Status()> reload);
  // Waits until a reload that runs has ended.
  ~ReloadThread();

  // Makes the thread reload, and once more after a reload that runs. Does not block.
  void Ask();
  // Ends a reload that runs at its next interruption point, and begins no other. Returns false if it has not ended in
  // this time: then the thread still uses what `reload` uses.
  bool Stop(std::chrono::milliseconds time);

 private:
  void Run();
  void Reload() const;

  const std::function<absl::Status()> reload_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool asked_ = false, ended_ = false;  // guarded by mutex_
  std::atomic<bool> stopping_{false};   // written under mutex_
  std::thread thread_;                  // declared last: it uses the others
};

}  // namespace posenc::server
