// gRPC as far as a call of the server sees it, made of standard types, so that server/call.h and its users run, as they
// are, under ThreadSanitizer. With this directory first among the include directories it takes <grpcpp/...>'s place.
//
// It promises no more than gRPC 1.51 does: reactions come on any of its threads, OnCancel beside the others and at any
// time, OnDone once, after all others, Finish() and the handler's return.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "posenc/work_pool.h"

namespace grpc {

enum StatusCode { OK = 0, CANCELLED = 1, DEADLINE_EXCEEDED = 4, UNAVAILABLE = 14 };

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

struct CallbackServerContext {
  std::chrono::system_clock::time_point deadline() const { return time_limit; }
  void AddTrailingMetadata(const std::string& key, const std::string& value) { trailers.emplace(key, value); }

  std::chrono::system_clock::time_point time_limit = std::chrono::system_clock::time_point::max();
  std::multimap<std::string, std::string> trailers;
};

// gRPC's threads.
inline posenc::WorkPool& Threads() {
  static posenc::WorkPool threads(3);
  return threads;
}

class FakeReactor;

// The other end of a call; outlives the reactor.
class FakeCall {
 public:
  // The handler has returned `reactor`.
  static std::shared_ptr<FakeCall> Of(FakeReactor* reactor);
  void Cancel();
  // Waits until the reactor is done.
  const Status& Wait();
  // The answer's messages so far, in order. Only after Wait().
  std::vector<ByteBuffer> messages;

 private:
  friend class FakeReactor;
  void Begin();
  void End();

  std::mutex mutex_;
  std::condition_variable changed_;
  FakeReactor* reactor_ = nullptr;
  int expected_ = 2;  // before OnDone: the handler's return, Finish(), reactions under way
  bool cancelled_ = false;
  bool done_ = false;
  Status status_;
};

class FakeReactor {
 public:
  virtual ~FakeReactor() = default;
  virtual void OnDone() = 0;
  virtual void OnCancel() {}
  virtual void OnWriteDone(bool) {}

  void Finish(const Status& status) {
    Threads().Submit([call = call_, status] {
      {
        std::lock_guard lock(call->mutex_);
        call->status_ = status;
      }
      call->End();
    });
  }
  void StartWrite(const ByteBuffer* message) {
    call_->Begin();
    Threads().Submit([this, call = call_, message] {
      bool ok;
      {
        std::lock_guard lock(call->mutex_);
        ok = !call->cancelled_;
        if (ok) call->messages.push_back(*message);
      }
      OnWriteDone(ok);
      call->End();
    });
  }

 private:
  friend class FakeCall;
  const std::shared_ptr<FakeCall> call_ = std::make_shared<FakeCall>();
};

inline std::shared_ptr<FakeCall> FakeCall::Of(FakeReactor* reactor) {
  const std::shared_ptr<FakeCall> call = reactor->call_;
  {
    std::lock_guard lock(call->mutex_);
    call->reactor_ = reactor;
  }
  call->End();
  return call;
}

inline void FakeCall::Cancel() {
  FakeReactor* reactor;
  {
    std::lock_guard lock(mutex_);
    if (cancelled_ || expected_ == 0) return;
    cancelled_ = true;
    ++expected_;
    reactor = reactor_;
  }
  Threads().Submit([reactor, call = reactor->call_] {
    reactor->OnCancel();
    call->End();
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

}  // namespace grpc
