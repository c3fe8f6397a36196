#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "posenc/base/status.h"
#include "server/calls/inference_service.h"
#include "server/calls/messages.h"
#include "server/core/rich_status.h"

namespace posenc::server {
namespace {

// Maximum number of requests that are read and whose answers are not yet written.
constexpr size_t kMostInFlight = 16;

class InferStream final : public Reactor {
 public:
  InferStream(const InferenceParts* parts, Rpc* rpc)
      : core_(parts->core),
        method_(InferMethod(parts, InferRpc::kInStream)),
        rpc_(rpc),
        call_(core_, method_.rpc, rpc, nullptr, Call::Kind::kStream) {}

  void Start() override {
    std::unique_lock lock(mutex_);
    // Limits how long a client that sends nothing can keep the call open.
    time_limit_ = core_->timers.At(call_.LatestEnd(), [this] {
      std::unique_lock held(mutex_);
      Stop(call_.StillWanted());
      Advance(std::move(held));
    });
    Advance(std::move(lock));
  }

 private:
  struct Message {
    std::unique_ptr<UnaryStep> step;
    bool done = false;
    grpc::ByteBuffer answer;  // in use by gRPC while it is written
    absl::Status last;        // not OK: the stream ends with it in place of an answer
  };

  void OnReadDone(bool ok) override {
    std::unique_lock lock(mutex_);
    awaited_ = false;
    Timers::Timer limit = std::move(receive_limit_);
    lock.unlock();
    limit.Revoke();  // without the lock: its action locks
    lock.lock();
    reading_ = false;
    if (!ok || !stopped_.ok()) {
      incoming_.Clear();
      half_closed_ = true;
      return Advance(std::move(lock));
    }
    // The first message was counted as the call. Above its rate, the caller may go on later.
    const absl::Status admitted = std::exchange(is_first_, false) ? absl::OkStatus() : rpc_->AdmitMessage();
    if (!admitted.ok() && !absl::IsUnavailable(admitted)) {
      incoming_.Clear();  // not kept while the client is awaited
      Stop(admitted);
      return Advance(std::move(lock));
    }
    messages_.push_back(std::make_unique<Message>());
    Message* const message = messages_.back().get();
    message->step = std::make_unique<UnaryStep>(core_, method_, rpc_, &incoming_,
                                                [this, message](const absl::Status& status) { Done(message, status); });
    lock.unlock();
    if (admitted.ok()) {
      message->step->Start();  // may call Done()
    } else {
      Done(message, admitted);
    }
    Advance(std::unique_lock(mutex_));
  }

  void OnWriteDone(bool ok) override {
    call_.EndSend();
    std::unique_lock lock(mutex_);
    writing_ = false;
    written_ = true;
    if (!ok) Stop(absl::CancelledError("the caller is gone"));
    Advance(std::move(lock));
  }

  // Called by a message's step. The message may be destroyed afterwards.
  void Done(Message* message, const absl::Status& status) {
    const absl::Status ended = message->step->call().Conclude(status);
    // A stream on which the caller goes on would prolong the drain: it ends with the first message that is refused.
    if (!ended.ok() && !message->step->call().was_admitted() && DetailsOf(ended).reason == "DRAINING") {
      message->last = ended;
    }
    grpc::ByteBuffer answer = ended.ok() ? message->step->TakeAnswer() : ErrorOf(*message, ended);
    std::unique_lock lock(mutex_);
    message->answer.Swap(&answer);
    message->done = true;
    Advance(std::move(lock));
  }

  static grpc::ByteBuffer ErrorOf(const Message& message, const absl::Status& status) {
    inference::ModelStreamInferResponse response;
    // A rich status' message is valid UTF-8.
    response.set_error_message(ToRich(status, /*started=*/false).message());
    response.mutable_infer_response()->set_id(message.step->call().request_id());
    return SerializeMessage(response);
  }

  // Keeps the first error. Requires mutex_.
  void Stop(const absl::Status& status) {
    if (stopped_.ok()) stopped_ = status;
  }

  // Starts every operation that can start now. The stream may be destroyed afterwards.
  void Advance(std::unique_lock<std::mutex> lock) {
    if (ended_) return;
    if (std::exchange(written_, false)) messages_.pop_front();
    if (!writing_ && !messages_.empty() && messages_.front()->done) Stop(messages_.front()->last);
    if (!stopped_.ok()) {
      while (!writing_ && !messages_.empty() && messages_.front()->done) messages_.pop_front();
    } else if (!writing_ && !messages_.empty() && messages_.front()->done) {
      writing_ = true;
      call_.BeginSend();
      rpc_->Write(messages_.front()->answer);
    }
    if (stopped_.ok() && !reading_ && !half_closed_ && messages_.size() < kMostInFlight) {
      reading_ = awaited_ = true;
      rpc_->Read(&incoming_);
    }
    if (stopped_.ok() && awaited_ && messages_.empty()) {
      awaited_ = false;
      receive_limit_ = core_->timers.After(std::chrono::seconds(core_->config.receive_timeout_s), [this] {
        std::unique_lock held(mutex_);
        Stop(absl::DeadlineExceededError("no message came within --receive-timeout"));
        Advance(std::move(held));
      });
    }
    const bool over = !stopped_.ok() || half_closed_;
    if (!over || !messages_.empty() || writing_) return;
    ended_ = true;
    lock.unlock();
    rpc_->Finish(call_.End(stopped_));
  }

  Core* const core_;
  const UnaryMethod method_;
  Rpc* const rpc_;
  Call call_;

  std::mutex mutex_;  // guards the members below
  absl::Status stopped_;
  grpc::ByteBuffer incoming_;  // in use by gRPC while reading_
  std::deque<std::unique_ptr<Message>> messages_;
  bool is_first_ = true;  // no message has come
  bool reading_ = false, writing_ = false, written_ = false;
  bool awaited_ = false;  // a read is pending whose time limit has not begun; it begins when no request is in work
  bool half_closed_ = false;
  bool ended_ = false;

  Timers::Timer time_limit_, receive_limit_;  // declared last: revoked first
};

}  // namespace

std::unique_ptr<Reactor> MakeInferStream(const InferenceParts* parts, Rpc* rpc) {
  return std::make_unique<InferStream>(parts, rpc);
}

}  // namespace posenc::server
