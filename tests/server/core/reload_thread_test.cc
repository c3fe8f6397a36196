// A thread that reloads: when asked, once more if asked meanwhile, and ended although a reload hangs.
#include "server/core/reload_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <mutex>
#include <new>
#include <utility>

#include "posenc/base/interruption.h"

namespace posenc::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;

// Reloads, each of which waits until it is let go.
class Gate {
 public:
  void Pass() {
    std::unique_lock lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return passes_ > 0; });
    --passes_;
  }
  void LetGo(int reloads) {
    const std::lock_guard lock(mutex_);
    passes_ += reloads;
    changed_.notify_all();
  }
  bool Begins(int reloads) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, minutes(1), [&] { return begun_ == reloads; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int begun_ = 0, passes_ = 0;
};

TEST(ReloadThread, ReloadsOnceMoreIfItIsAskedMeanwhile) {
  Gate gate;
  ReloadThread thread("not read", [&gate] { gate.Pass(); });
  thread.Ask();
  EXPECT_TRUE(gate.Begins(1));
  for (int n = 0; n < 10; ++n) thread.Ask();
  gate.LetGo(3);
  EXPECT_TRUE(gate.Begins(2));
  EXPECT_TRUE(thread.Stop(minutes(1)));
  EXPECT_TRUE(gate.Begins(2)) << "ten questions are one";
}

TEST(ReloadThread, StopDoesNotWaitForAReloadThatHangs) {
  Gate gate;
  ReloadThread thread("not read", [&gate] { gate.Pass(); });
  thread.Ask();
  EXPECT_TRUE(gate.Begins(1));
  EXPECT_FALSE(thread.Stop(milliseconds(1)));
  gate.LetGo(1);
  EXPECT_TRUE(thread.Stop(minutes(1)));
}

TEST(ReloadThread, StopInterruptsALongReload) {
  std::promise<void> begun;
  ReloadThread thread("not read", [&begun] {
    begun.set_value();
    for (;;) InterruptionPoint();
  });
  thread.Ask();
  begun.get_future().wait();
  EXPECT_TRUE(thread.Stop(minutes(1)));
}

TEST(ReloadThread, GoesOnAfterALackOfMemory) {
  Gate gate;
  gate.LetGo(2);
  ReloadThread thread("not read", [&gate] {
    gate.Pass();
    throw std::bad_alloc();
  });
  for (int n = 1; n <= 2; ++n) {
    thread.Ask();
    EXPECT_TRUE(gate.Begins(n));
  }
}

}  // namespace
}  // namespace posenc::server
