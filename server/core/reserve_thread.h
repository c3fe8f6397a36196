// A thread that is started before there is work for it, so that no lack of threads can prevent that work later.
#pragma once

#include <functional>
#include <future>
#include <thread>
#include <utility>

namespace posenc::server {

class ReserveThread {
 public:
  ReserveThread() : thread_([this] { Work(); }) {}
  // Waits for the work.
  ~ReserveThread() {
    if (!has_work_) given_.set_value(std::packaged_task<void()>());
    thread_.join();
  }

  // Makes the thread do the work; the future is ready once it has ended. Call it at most once.
  std::future<void> Do(std::function<void()> work) {
    std::packaged_task<void()> task(std::move(work));
    std::future<void> ended = task.get_future();
    given_.set_value(std::move(task));
    has_work_ = true;
    return ended;
  }

 private:
  void Work() {
    if (std::packaged_task<void()> task = given_.get_future().get(); task.valid()) task();
  }

  std::promise<std::packaged_task<void()>> given_;
  bool has_work_ = false;
  std::thread thread_;
};

}  // namespace posenc::server
