// A thread that reads files again when it is asked to: their file system may hang, and nothing else waits for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace posenc::server {

class ReloadThread {
 public:
  // `reload` is called on the thread. If it throws, `failed` is logged with the error.
  ReloadThread(std::string failed, std::function<void()> reload);
  // Waits until a reload that runs has ended.
  ~ReloadThread();

  // Makes the thread reload, and once more after a reload that runs. Does not block.
  void Ask();
  // Ends a reload that runs at its next interruption point, and begins no other. Returns false if it has not ended in
  // this time: then the thread still uses what `reload` uses.
  bool Stop(std::chrono::steady_clock::duration time);

 private:
  void Run();
  void Reload() const;

  const std::string failed_;
  const std::function<void()> reload_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool asked_ = false, ended_ = false;  // guarded by mutex_
  std::atomic<bool> stopping_{false};   // written under mutex_
  std::thread thread_;                  // declared last: it uses the others
};

}  // namespace posenc::server
