// Closes the descriptors of callers on a thread of its own.
//
// The last word in close() has what the descriptor refers to: a file system in user space (FUSE) that does not answer
// keeps the thread for as long as it wants, and no signal ends that wait.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <thread>

#include "server/core/descriptor.h"

namespace posenc::server {

// Thread-safe.
class Closer {
 public:
  static constexpr size_t kMostWaiting = 64;

  Closer() : thread_([this] { Run(); }) {}
  // Waits until all are closed.
  ~Closer();
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;

  void Close(Descriptor descriptor);
  // True while so many wait that no more should be taken.
  bool is_full();

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Descriptor> waiting_;  // the first one is being closed
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace posenc::server
