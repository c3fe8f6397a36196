#include "server/listen/lingering_closes.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace posenc::server {
namespace {

constexpr std::chrono::milliseconds kInterval(200);
// Function of Linux in which close() of a socket waits. Blocking reads of sockets and writes to terminals wait there
// too; they go on after the signal.
constexpr char kWaitsIn[] = "wait_woken";

void InterruptThreads() {
  std::error_code error;
  for (std::filesystem::directory_iterator task("/proc/self/task", error), end; !error && task != end;
       task.increment(error)) {
    std::string function;
    std::ifstream(task->path() / "wchan") >> function;
    if (function != kWaitsIn) continue;
    syscall(SYS_tgkill, getpid(), std::atoi(task->path().filename().c_str()), SIGURG);
  }
}

}  // namespace

LingeringCloses::LingeringCloses() {
  struct sigaction action = {};
  action.sa_handler = [](int) {};  // an ignored signal would not end the wait
  action.sa_flags = SA_RESTART;    // for other calls
  sigaction(SIGURG, &action, nullptr);
  thread_ = std::thread([this] { Watch(); });
}

LingeringCloses::~LingeringCloses() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LingeringCloses::Watch() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kInterval, [this] { return stopping_; })) InterruptThreads();
}

}  // namespace posenc::server
