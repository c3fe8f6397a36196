#include "server/listen/lingering_closes.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "server/core/descriptor.h"

namespace posenc::server {
namespace {

constexpr std::chrono::milliseconds kInterval(200);
// Function of Linux in which close() of a socket waits. Blocking reads of sockets and writes to terminals wait there
// too; they go on after the signal.
constexpr char kWaitsIn[] = "wait_woken";

// `tasks` is the open directory /proc/self/task.
void InterruptThreads(DIR* tasks) {
  rewinddir(tasks);
  while (const dirent* task = readdir(tasks)) {
    const pid_t thread = std::atoi(task->d_name);
    if (thread == 0) continue;  // "." and ".."
    const std::string path = std::string(task->d_name) + "/wchan";
    const Descriptor file(openat(dirfd(tasks), path.c_str(), O_RDONLY | O_CLOEXEC));
    const bool no_descriptor_left = !file.valid() && (errno == EMFILE || errno == ENFILE);
    char function[64];
    const ssize_t size = file.valid() ? read(file.get(), function, sizeof(function)) : 0;
    const bool waits = size > 0 && std::string_view(function, static_cast<size_t>(size)) == kWaitsIn;
    if (waits || no_descriptor_left) syscall(SYS_tgkill, getpid(), thread, SIGURG);
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
  // Opened once: later there may be no descriptor for it.
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir("/proc/self/task"), &closedir);
  if (tasks == nullptr) return;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kInterval, [this] { return stopping_; })) InterruptThreads(tasks.get());
}

}  // namespace posenc::server
