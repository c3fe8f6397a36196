// gRPC as far as a call of the server sees it, made of standard types, so that server/call.h and its users run, as they
// are, under ThreadSanitizer. With this directory first among the include directories it takes <grpcpp/...>'s place.
//
// It promises no more than gRPC 1.51 does: reactions come on any of its threads, OnCancel beside the others and at any
// time, a read's and a write's at the same time, OnDone once, after all others, Finish() and the handler's return. What
// is not answered for (TryCancel after OnDone, a second read, a write while there is one) ends the process.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "posenc/work_pool.h"

namespace grpc {

enum StatusCode {
  OK = 0,
  CANCELLED = 1,
  INVALID_ARGUMENT = 3,
  DEADLINE_EXCEEDED = 4,
  RESOURCE_EXHAUSTED = 8,
  UNAVAILABLE = 14,
};

class Status {
 public:
  static const Status OK;

  Status() = default;
  Status(StatusCode code, std::string message, std::string details)
      : code_(code), message_(std::move(message)), details_(std::move(details)) {}
  bool ok() const { return code_ == StatusCode::OK; }
  StatusCode error_code() const { return code_; }
  const std::string& error_message() const { return message_; }
  const std::string& error_details() const { return details_; }

 private:
  StatusCode code_ = StatusCode::OK;
  std::string message_, details_;
};
inline const Status Status::OK;

// Copies share the bytes; the last one calls `destroy`.
class Slice {
 public:
  Slice(void* begin, size_t size, void (*destroy)(void*), void* argument)
      : begin_(static_cast<const uint8_t*>(begin)), size_(size), owner_(argument, destroy) {}
  const uint8_t* begin() const { return begin_; }
  const uint8_t* end() const { return begin_ + size_; }
  size_t size() const { return size_; }

 private:
  const uint8_t* begin_;
  size_t size_;
  std::shared_ptr<void> owner_;
};

class ByteBuffer {
 public:
  ByteBuffer() = default;
  ByteBuffer(const Slice* slices, size_t count) : valid_(true), slices_(slices, slices + count) {}
  bool Valid() const { return valid_; }
  size_t Length() const {
    size_t length = 0;
    for (const Slice& slice : slices_) length += slice.size();
    return length;
  }
  Status Dump(std::vector<Slice>* slices) const {
    *slices = slices_;
    return {};
  }
  void Swap(ByteBuffer* other) { std::swap(*this, *other); }
  void Clear() { *this = ByteBuffer(); }

 private:
  bool valid_ = false;
  std::vector<Slice> slices_;
};

class FakeCall;

struct CallbackServerContext {
  std::chrono::system_clock::time_point deadline() const { return time_limit; }
  void AddTrailingMetadata(const std::string& key, const std::string& value) { trailers.emplace(key, value); }
  inline void TryCancel();

  std::chrono::system_clock::time_point time_limit = std::chrono::system_clock::time_point::max();
  std::multimap<std::string, std::string> trailers;

  // Set when the handler has returned; a cancellation that came before is made up for then.
  std::mutex mutex;
  std::shared_ptr<FakeCall> call;
  bool cancelled = false;
};

// gRPC's threads.
inline posenc::WorkPool& Threads() {
  static posenc::WorkPool threads(3);
  return threads;
}

class FakeReactor;

// The other end of a call; outlives the reactor.
class FakeCall : public std::enable_shared_from_this<FakeCall> {
 public:
  // The handler has returned `reactor`.
  static std::shared_ptr<FakeCall> Of(FakeReactor* reactor, CallbackServerContext* context = nullptr);
  void Cancel();
  // What the client sends, and its end.
  void Send(const ByteBuffer& message);
  void HalfClose();
  // The client takes nothing more: a write, or the end, waits until the call is cancelled.
  void ShutWindow();
  // Waits until so many messages have been written, or none will be any more.
  void WaitForMessages(size_t count);
  // Waits until the reactor is done.
  const Status& Wait();
  // The answer's messages so far, in order. Only after Wait().
  std::vector<ByteBuffer> messages;

 private:
  friend class FakeReactor;
  friend struct CallbackServerContext;
  void Begin();
  void End();
  void Deliver();
  // Runs it on one of the threads, once the window is open or the call is cancelled.
  void WhenTaken(std::function<void()> reaction);

  std::mutex mutex_;
  std::condition_variable changed_;
  FakeReactor* reactor_ = nullptr;
  int expected_ = 2;  // before OnDone: the handler's return, Finish(), reactions under way
  bool cancelled_ = false;
  bool done_ = false;
  Status status_;
  bool finished_ = false;
  bool window_shut_ = false;
  std::vector<std::function<void()>> untaken_;
  std::deque<ByteBuffer> sent_;  // and not read
  bool half_closed_ = false;
  ByteBuffer* read_into_ = nullptr;  // a read that waits
  bool writing_ = false;
};

class FakeReactor {
 public:
  FakeReactor() { call_->reactor_ = this; }
  virtual ~FakeReactor() = default;
  virtual bool InternalInlineable() { return false; }
  virtual void OnDone() = 0;
  virtual void OnCancel() {}
  virtual void OnReadDone(bool) {}
  virtual void OnWriteDone(bool) {}

  void Finish(const Status& status) {
    call_->WhenTaken([call = call_, status] {
      {
        std::lock_guard lock(call->mutex_);
        if (call->finished_) std::abort();
        call->finished_ = true;
        call->status_ = status;
      }
      call->Deliver();
      call->End();
    });
  }
  void StartWrite(const ByteBuffer* message) {
    call_->Begin();
    {
      std::lock_guard lock(call_->mutex_);
      if (std::exchange(call_->writing_, true)) std::abort();
    }
    call_->WhenTaken([this, call = call_, message] {
      bool ok;
      {
        std::lock_guard lock(call->mutex_);
        ok = !call->cancelled_;
        if (ok) call->messages.push_back(*message);
        call->writing_ = false;
        call->changed_.notify_all();
      }
      OnWriteDone(ok);
      call->End();
    });
  }
  void StartRead(ByteBuffer* message) {
    call_->Begin();
    {
      std::lock_guard lock(call_->mutex_);
      if (call_->read_into_ != nullptr || call_->finished_) std::abort();
      call_->read_into_ = message;
    }
    call_->Deliver();
  }

 private:
  friend class FakeCall;
  const std::shared_ptr<FakeCall> call_ = std::make_shared<FakeCall>();
};

inline std::shared_ptr<FakeCall> FakeCall::Of(FakeReactor* reactor, CallbackServerContext* context) {
  const std::shared_ptr<FakeCall> call = reactor->call_;
  bool cancelled = false;
  if (context != nullptr) {
    std::lock_guard lock(context->mutex);
    context->call = call;
    cancelled = context->cancelled;
  }
  if (cancelled) call->Cancel();
  call->End();
  return call;
}

inline void CallbackServerContext::TryCancel() {
  std::shared_ptr<FakeCall> bound;
  {
    std::lock_guard lock(mutex);
    cancelled = true;
    bound = call;
  }
  if (bound == nullptr) return;
  {
    std::lock_guard lock(bound->mutex_);
    if (bound->done_) std::abort();
  }
  bound->Cancel();
}

inline void FakeCall::Cancel() {
  FakeReactor* reactor;
  {
    std::lock_guard lock(mutex_);
    if (cancelled_ || expected_ == 0) return;
    cancelled_ = true;
    ++expected_;
    reactor = reactor_;
    for (std::function<void()>& reaction : untaken_) Threads().Submit(std::move(reaction));
    untaken_.clear();
  }
  Threads().Submit([reactor, call = reactor->call_] {
    reactor->OnCancel();
    call->End();
  });
  Deliver();
}

inline void FakeCall::Send(const ByteBuffer& message) {
  {
    std::lock_guard lock(mutex_);
    sent_.push_back(message);
  }
  Deliver();
}

inline void FakeCall::HalfClose() {
  {
    std::lock_guard lock(mutex_);
    half_closed_ = true;
  }
  Deliver();
}

inline void FakeCall::ShutWindow() {
  std::lock_guard lock(mutex_);
  window_shut_ = true;
}

inline void FakeCall::WaitForMessages(size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, count] { return messages.size() >= count || done_; });
}

inline void FakeCall::WhenTaken(std::function<void()> reaction) {
  {
    std::lock_guard lock(mutex_);
    if (window_shut_ && !cancelled_) {
      untaken_.push_back(std::move(reaction));
      return;
    }
  }
  Threads().Submit(std::move(reaction));
}

// Completes the read that waits, if it can be.
inline void FakeCall::Deliver() {
  std::unique_lock lock(mutex_);
  if (read_into_ == nullptr) return;
  const bool over = cancelled_ || finished_;
  if (!over && sent_.empty() && !half_closed_) return;
  const bool ok = !over && !sent_.empty();
  if (ok) {
    *read_into_ = sent_.front();
    sent_.pop_front();
  }
  read_into_ = nullptr;
  FakeReactor* reactor = reactor_;
  const std::shared_ptr<FakeCall> self = shared_from_this();
  lock.unlock();
  Threads().Submit([reactor, self, ok] {
    reactor->OnReadDone(ok);
    self->End();
  });
}

inline const Status& FakeCall::Wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
  return status_;
}

inline void FakeCall::Begin() {
  std::lock_guard lock(mutex_);
  ++expected_;
}

inline void FakeCall::End() {
  FakeReactor* reactor;
  {
    std::lock_guard lock(mutex_);
    if (--expected_ > 0) return;
    reactor = reactor_;
  }
  reactor->OnDone();
  std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

using ServerUnaryReactor = FakeReactor;
template <class Message>
using ServerWriteReactor = FakeReactor;
template <class Request, class Response>
using ServerBidiReactor = FakeReactor;

}  // namespace grpc
