// Ends close() calls in which a caller keeps the server's threads.
//
// A process that can open a Unix socket can pass the descriptor of a TCP socket with SO_LINGER and unsent data. The
// kernel closes it in the thread that receives, even if that takes no descriptors, and the thread then waits as long as
// the caller has chosen. A signal ends the wait. Linux 6.16 can refuse descriptors (listening_socket.cc), except on the
// side socket, which needs them.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace posenc::server {

// While it lives, no thread of the process waits for much longer than 0.2 seconds for the descriptors of one message,
// if the system shows where threads wait (/proc/self/task/TID/wchan). Uses SIGURG.
class LingeringCloses {
 public:
  LingeringCloses();
  ~LingeringCloses();
  LingeringCloses(const LingeringCloses&) = delete;
  LingeringCloses& operator=(const LingeringCloses&) = delete;

 private:
  void Watch();

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace posenc::server
