// An RPC without a transport. It guarantees no more than server/grpc/completion_queue.h: reactions run on any of its
// threads; OnCancel may run during others, a read's during a write's; the reactor is destroyed once, after all
// reactions, Finish() and Start(). Misuse (TryCancel after that, a second read, a write during a write) ends the
// process. On request, reactions run one after the other on the thread that waits instead: this is faster.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "posenc/base/work_pool.h"
#include "server/calls/rpc.h"

namespace posenc::server {

// The bytes of a buffer.
inline std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  static_cast<void>(buffer.Dump(&slices));
  std::string bytes;
  for (const grpc::Slice& slice : slices) bytes.append(slice.begin(), slice.end());
  return bytes;
}

// The bytes in slices of `most`, as gRPC delivers a message in frames.
inline grpc::ByteBuffer BufferOf(const std::string& bytes, size_t most) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += most) slices.emplace_back(bytes.substr(at, most));
  return {slices.data(), slices.size()};
}

// The destructor waits for the end of an RPC that has begun.
class FakeRpc final : public Rpc {
 public:
  enum class Reactions { kOnThreads, kWhileWaiting };

  explicit FakeRpc(const grpc::ByteBuffer& request = {}, Reactions reactions = Reactions::kOnThreads)
      : on_threads_(reactions == Reactions::kOnThreads), request_(request) {}
  ~FakeRpc() {
    if (reactor_ != nullptr) Wait();
  }

  // Set before Serve().
  std::chrono::system_clock::time_point time_limit = std::chrono::system_clock::time_point::max();
  std::string connection_name;
  uint64_t number_of_connection = 0;
  std::map<std::string, std::string> headers;
  const Identity* caller = nullptr;
  absl::Status of_messages;  // what AdmitMessage() returns
  // Read only after Wait().
  std::multimap<std::string, std::string> trailers;
  std::vector<grpc::ByteBuffer> messages;  // the answer's, in order

  void Serve(const MakeReactor& make) {
    reactor_ = make(this, &request_);
    reactor_->Start();
    std::unique_lock lock(mutex_);
    started_ = true;
    const bool tell = cancelled_;
    lock.unlock();
    if (tell) TellCancelled();
    End();
  }
  std::string connection() const override { return connection_name; }
  uint64_t connection_number() const override { return number_of_connection; }
  bool is_local() const override { return true; }
  bool is_unix() const override { return true; }
  const Identity* identity() const override { return caller; }
  absl::Status AdmitMessage() override { return of_messages; }
  std::string header(const std::string& name) const override {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
  // The client's messages, and their end.
  void Send(const grpc::ByteBuffer& message) {
    Change([&] { sent_.push_back(message); });
    Deliver();
  }
  void HalfClose() {
    Change([&] { half_closed_ = true; });
    Deliver();
  }
  // The client stops reading: a write, or the end, waits until the call is cancelled.
  void ShutWindow() {
    Change([&] { window_shut_ = true; });
  }
  void Cancel() {
    std::unique_lock lock(mutex_);
    if (cancelled_ || expected_ == 0) return;
    cancelled_ = true;
    ++expected_;
    const bool tell = started_;
    for (auto& reaction : untaken_) Submit(std::move(reaction));
    untaken_.clear();
    lock.unlock();
    if (tell) TellCancelled();
    Deliver();
    End();
  }
  // Waits until `count` messages have been written or the RPC has ended.
  void WaitForMessages(size_t count) {
    WaitUntil([this, count] { return messages.size() >= count || done_; });
  }
  // Waits until the reactor is destroyed.
  const grpc::Status& Wait() {
    WaitUntil([this] { return done_; });
    return status_;
  }

  std::chrono::system_clock::time_point deadline() const override { return time_limit; }
  bool cancelled() const override {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }
  void AddTrailer(const std::string& name, const std::string& value) override { trailers.emplace(name, value); }
  void TryCancel() override {
    Change([&] {
      if (done_) std::abort();
    });
    Cancel();
  }
  void BeginRequest() override { ++requests_; }
  void EndRequest() override { --requests_; }
  void Read(grpc::ByteBuffer* message) override {
    Change([&] {
      ++expected_;
      if (read_into_ != nullptr || finished_) std::abort();
      read_into_ = message;
    });
    Deliver();
  }
  void Write(const grpc::ByteBuffer& message) override {
    Change([&] {
      ++expected_;
      if (std::exchange(writing_, true)) std::abort();
    });
    WhenTaken([this, message] {
      bool ok = false;
      Change([&] {
        ok = !cancelled_;
        if (ok) messages.push_back(message);
        writing_ = false;
      });
      reactor_->OnWriteDone(ok);
      End();
    });
  }
  void Finish(const grpc::Status& status) override {
    WhenTaken([this, status] { Finished(status); });
  }
  void WriteAndFinish(const grpc::ByteBuffer& message) override {
    WhenTaken([this, message] {
      Change([&] { messages.push_back(message); });
      Finished(grpc::Status::OK);
    });
  }

 private:
  static WorkPool& Threads() {
    static WorkPool threads(3);
    return threads;
  }

  template <typename Body>
  void Change(const Body& body) {
    const std::lock_guard lock(mutex_);
    body();
    changed_.notify_all();
  }

  // The caller holds the mutex.
  void Submit(std::function<void()> reaction) {
    if (on_threads_) return Threads().Submit(std::move(reaction));
    reactions_.push_back(std::move(reaction));
    changed_.notify_all();
  }

  template <typename Condition>
  void WaitUntil(const Condition& holds) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return holds() || !reactions_.empty(); });
      if (holds()) return;
      const auto reaction = std::move(reactions_.front());
      reactions_.pop_front();
      lock.unlock();
      reaction();
      lock.lock();
    }
  }

  void Finished(const grpc::Status& status) {
    Change([&] {
      if (finished_) std::abort();
      finished_ = true;
      status_ = status;
    });
    Deliver();
    End();
  }

  // Runs the reaction on one of the threads; if the window is shut, only once the call is cancelled.
  void WhenTaken(std::function<void()> reaction) {
    const std::lock_guard lock(mutex_);
    if (window_shut_ && !cancelled_) {
      untaken_.push_back(std::move(reaction));
    } else {
      Submit(std::move(reaction));
    }
  }

  void TellCancelled() {
    Change([&] {
      ++expected_;
      Submit([this] {
        reactor_->OnCancel();
        End();
      });
    });
  }

  // Completes the pending read, if possible.
  void Deliver() {
    const std::lock_guard lock(mutex_);
    if (read_into_ == nullptr) return;
    const bool over = cancelled_ || finished_;
    if (!over && sent_.empty() && !half_closed_) return;
    const bool ok = !over && !sent_.empty();
    if (ok) {
      *read_into_ = sent_.front();
      sent_.pop_front();
    }
    read_into_ = nullptr;
    Submit([this, ok] {
      reactor_->OnReadDone(ok);
      End();
    });
  }

  void End() {
    {
      const std::lock_guard lock(mutex_);
      if (--expected_ > 0) return;
    }
    reactor_.reset();
    if (requests_ != 0) std::abort();  // a drain would wait for ever, or not at all
    Change([&] { done_ = true; });
  }

  const bool on_threads_;
  std::atomic<int> requests_{0};  // in progress
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> reactions_;  // not run yet; empty with on_threads_
  grpc::ByteBuffer request_;
  std::unique_ptr<Reactor> reactor_;
  int expected_ = 2;  // outstanding before the reactor's end: Start(), Finish(), operations
  bool started_ = false, cancelled_ = false, finished_ = false, done_ = false;
  grpc::Status status_;
  bool window_shut_ = false;
  std::vector<std::function<void()>> untaken_;
  std::deque<grpc::ByteBuffer> sent_;  // sent but not read
  bool half_closed_ = false;
  grpc::ByteBuffer* read_into_ = nullptr;  // the pending read's message
  bool writing_ = false;
};

}  // namespace posenc::server
