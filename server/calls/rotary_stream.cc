#include "server/calls/calls.h"

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "posenc/base/status.h"
#include "posenc/mapping/rotary_source.h"
#include "posenc/service/hints.h"
#include "posenc/service/rotary_stream.h"
#include "posenc/wire/answer.h"
#include "posenc/wire/parse.h"
#include "server/calls/messages.h"
#include "server/core/answered.h"

namespace posenc::server {
namespace {

// Maximum number of messages that are read and whose answers are not yet written.
constexpr size_t kMostInWork = 2;
// Bytes by which an answer may exceed its chunk: lengths and tags that the request may omit.
constexpr size_t kOverhead = 64;

class RotaryCall final : public Reactor {
 public:
  RotaryCall(Core* core, Rpc* rpc)
      : core_(core),
        rpc_description_(wire::RpcOf(*v1::StreamApplyRotaryRequest::descriptor())),
        rpc_(rpc),
        call_(core, rpc_description_, rpc, nullptr, Call::Kind::kStream) {}

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
  struct Reply {
    grpc::ByteBuffer bytes;  // in use by gRPC while it is written
    v1::Operand operand = v1::OPERAND_UNSPECIFIED;
    int64_t begin = 0, end = 0;
  };

  void OnReadDone(bool ok) override {
    std::unique_lock lock(mutex_);
    awaited_ = false;
    Timers::Timer limit = std::move(receive_limit_);
    lock.unlock();
    limit.Revoke();  // without the lock: its action locks
    lock.lock();
    reading_ = false;
    // Admitted only now: a client that sends nothing takes no place among --max-in-flight-requests.
    if (ok && !ended_ && stopped_.ok() && !std::exchange(admitted_, true)) Stop(call_.AdmitStream());
    if (ok) {
      received_.emplace_back().Swap(&incoming_);
    } else {
      half_closed_ = true;
    }
    Advance(std::move(lock));
  }

  void OnWriteDone(bool ok) override {
    call_.EndSend();
    std::unique_lock lock(mutex_);
    writing_ = held_up_ = false;
    const Reply& reply = replies_.front();
    if (!ok) {
      Stop(absl::CancelledError("the caller is gone"));
    } else if (reply.operand != v1::OPERAND_UNSPECIFIED) {
      (reply.operand == v1::OPERAND_QUERY ? q_ : k_).Add(reply.begin, reply.end);
    }
    replies_.pop_front();
    if (!ok) replies_.clear();
    Advance(std::move(lock));
  }

  // Keeps the first error. Requires mutex_.
  void Stop(const absl::Status& status) {
    if (stopped_.ok()) stopped_ = status;
  }

  // Starts every operation that can start now. The call may be destroyed afterwards.
  void Advance(std::unique_lock<std::mutex> lock) {
    if (ended_) return received_.clear();
    if (!writing_ && !replies_.empty()) {
      writing_ = true;
      call_.BeginSend();
      rpc_->Write(replies_.front().bytes);
    }
    if (stopped_.ok() && !computing_ && !held_up_ && !received_.empty()) {
      computing_ = true;
      const absl::Status submitted = WithoutExceptions([this] {
        call_.Submit([this, first = &received_.front()] { Work(first); });
        return absl::OkStatus();
      });
      if (!submitted.ok()) computing_ = false;
      Stop(submitted);
    }
    if (stopped_.ok() && !reading_ && !half_closed_ && received_.size() + replies_.size() < kMostInWork) {
      reading_ = awaited_ = true;
      rpc_->Read(&incoming_);
    }
    if (stopped_.ok() && awaited_ && received_.empty() && replies_.empty()) {
      awaited_ = false;
      receive_limit_ = core_->timers.After(std::chrono::seconds(core_->config.receive_timeout_s), [this] {
        std::unique_lock held(mutex_);
        Stop(absl::DeadlineExceededError("no message came within --receive-timeout"));
        Advance(std::move(held));
      });
    }
    const bool over = !stopped_.ok() || (half_closed_ && received_.empty());
    if (!over || computing_ || writing_) return;
    ended_ = true;
    if (!stream_) Stop(call_.StillWanted());
    if (!stream_) Stop(InvalidArgument("MISSING", "header", "", "must be given, first"));
    const absl::Status status = stopped_.ok() ? stopped_ : Resumable(stopped_);
    received_.clear();
    lock.unlock();
    call_.Free(std::move(stream_));  // can be large, as the messages: not kept while the client is awaited
    header_charge_.Return();
    rpc_->Finish(call_.End(status));
  }

  absl::Status Resumable(const absl::Status& status) const {
    const bool has_q_left = !stream_ || q_.FirstMissing() < stream_->Size(v1::OPERAND_QUERY);
    const bool known = at_fault_ == v1::OPERAND_QUERY || at_fault_ == v1::OPERAND_KEY;
    const v1::Operand operand = known ? at_fault_ : has_q_left ? v1::OPERAND_QUERY : v1::OPERAND_KEY;
    const Answered& answered = operand == v1::OPERAND_QUERY ? q_ : k_;
    return ResumableAt(v1::Operand_Name(operand), answered.FirstMissing(), status);
  }

  // Serves the first received message on a pool thread. More messages may arrive meanwhile.
  void Work(grpc::ByteBuffer* first) {
    Reply reply;
    bool no_room = false;
    call_.BeginWork();
    const absl::Status status = call_.RunStep([&] { return Serve(*first, &reply, &no_room); });
    // Cleared only now: a ByteBuffer must be the last to release a message's slices. gRPC 1.51 crashes if memory is
    // short and the last one is a grpc::Slice on a thread that is not gRPC's own.
    if (status.ok() && !no_room) first->Clear();
    call_.EndWork();
    std::unique_lock lock(mutex_);
    computing_ = false;
    if (no_room) {
      held_up_ = !replies_.empty();
    } else if (status.ok()) {
      received_.pop_front();
      replies_.push_back(std::move(reply));
    }
    Stop(status);
    Advance(std::move(lock));
  }

  absl::Status Serve(grpc::ByteBuffer& message, Reply* reply, bool* no_room) {
    POSENC_RETURN_IF_ERROR(call_.StillWanted());
    POSENC_RETURN_IF_ERROR(call_.CheckSize(message.Length()));
    const size_t held = message.Length() + transport::SliceListBytes(&message);
    Charge charge;
    POSENC_RETURN_IF_ERROR(Admit(held, 0, &charge, no_room));
    if (*no_room) return absl::OkStatus();
    call_.HoldMessage(held);

    grpc::ByteBuffer decompressed;
    grpc::ByteBuffer* bytes = &message;
    if (IsCompressed(&message)) {
      // A copy: a message stays compressed while it waits for its turn again.
      decompressed = message;
      POSENC_RETURN_IF_ERROR(call_.Decompress(&decompressed));
      bytes = &decompressed;
    }
    const size_t size = bytes->Length();
    auto slices = transport::SlicesOf(bytes);
    if (!slices) return InvalidArgument("MALFORMED", kWholeRequest, "bytes that cannot be read", "must be one message");
    transport::SliceStream stream(*slices);
    v1::StreamApplyRotaryRequest request;
    POSENC_ASSIGN_OR_RETURN(auto ranges, wire::ParseRequest(rpc_description_.request_stripper, &stream, &request));
    const transport::SlicedPayloads payloads(*std::move(slices), std::move(ranges));
    switch (request.part_case()) {
      case v1::StreamApplyRotaryRequest::PART_NOT_SET:
        return InvalidArgument("MISSING", "part", "", "must be given: a header, then chunks");
      case v1::StreamApplyRotaryRequest::kHeader:
        POSENC_RETURN_IF_ERROR(Open(request.header(), payloads, reply));
        header_charge_ = std::move(charge);  // the tables stay in memory
        break;
      case v1::StreamApplyRotaryRequest::kChunk:
        at_fault_ = request.chunk().operand();
        POSENC_RETURN_IF_ERROR(Rotate(request.chunk(), payloads, held, reply, no_room));
        if (*no_room) return absl::OkStatus();
        at_fault_ = v1::OPERAND_UNSPECIFIED;
        break;
    }
    call_.CountIn(size);
    return absl::OkStatus();
  }

  absl::Status Open(const v1::ApplyRotaryRequest& header, const wire::Payloads& payloads, Reply* reply) {
    if (stream_) return InvalidArgument("CONFLICT", "header", "", "must be sent once");
    POSENC_RETURN_IF_ERROR(Within("header", wire::CheckHints(header, core_->devices)));
    POSENC_ASSIGN_OR_RETURN(wire::RotaryStream stream,
                            wire::RotaryStream::Create(header, payloads, core_->config.limits));
    v1::StreamApplyRotaryResponse response;
    wire::CopyInfo(stream.info(), response.mutable_info());
    POSENC_ASSIGN_OR_RETURN(const wire::Answer layout, wire::Answer::LayOut(&response, {}));
    POSENC_ASSIGN_OR_RETURN(auto charge, call_.ChargeAnswer(layout.size()));
    POSENC_RETURN_IF_ERROR(call_.Compute(nullptr, {}, payloads, layout, std::move(charge), &reply->bytes));
    dtype_ = header.q().tensor().dtype();
    const std::lock_guard lock(mutex_);
    stream_.emplace(std::move(stream));
    return absl::OkStatus();
  }

  absl::Status Rotate(const v1::RotaryChunk& chunk, const wire::Payloads& payloads, size_t held, Reply* reply,
                      bool* no_room) {
    if (!stream_) return InvalidArgument("MISSING", "header", "", "must be given, before chunks");
    const size_t size = payloads.Size(chunk.rows());
    POSENC_RETURN_IF_ERROR(stream_->Check(chunk, size));
    POSENC_RETURN_IF_ERROR(CheckOutput(static_cast<int64_t>(size), core_->config.limits));
    auto charge = std::make_shared<Charge>();
    POSENC_RETURN_IF_ERROR(Admit(size + kOverhead, held, charge.get(), no_room));
    if (*no_room) return absl::OkStatus();

    reply->operand = chunk.operand();
    reply->begin = chunk.rows().byte_offset();
    reply->end = reply->begin + static_cast<int64_t>(size);
    const wire::Job::Run rotate = [&](const wire::Payloads& from, absl::Span<std::byte* const> buffers, WorkPool& pool,
                                      const Cancellation& cancelled) {
      const wire::ChunkBytes x(from, chunk.rows());
      return stream_->Rotate(reply->operand, reply->begin, static_cast<int64_t>(size), x, buffers[0], pool, cancelled);
    };
    POSENC_RETURN_IF_ERROR(call_.Compute(rotate, {{nullptr, size}}, payloads, wire::Answer::OfChunk(chunk, size),
                                         std::move(charge), &reply->bytes));
    call_.CountTensor(dtype_, stream_->info().device(), size);
    return absl::OkStatus();
  }

  // Sets *no_room if the bytes do not fit now, but answers of this stream are still to be sent.
  absl::Status Admit(size_t size, size_t held, Charge* charge, bool* no_room) {
    const auto bytes = static_cast<int64_t>(size);
    const auto verdict = core_->admission->AdmitBytes(bytes, static_cast<int64_t>(held), charge, call_.caller());
    if (verdict == Admission::Verdict::kOverloaded) {
      const std::lock_guard lock(mutex_);
      *no_room = !replies_.empty();
    }
    return *no_room ? absl::OkStatus() : call_.Refuse(verdict, bytes + static_cast<int64_t>(held));
  }

  Core* const core_;
  const wire::RpcDescription& rpc_description_;
  Rpc* const rpc_;
  Call call_;

  // Used by the computing thread; by other threads only while none computes.
  Charge header_charge_;
  std::optional<wire::RotaryStream> stream_;
  v1::DataType dtype_ = v1::DATA_TYPE_UNSPECIFIED;
  v1::Operand at_fault_ = v1::OPERAND_UNSPECIFIED;  // operand of the chunk in work, or that failed

  std::mutex mutex_;  // guards the members below
  absl::Status stopped_;
  grpc::ByteBuffer incoming_;              // in use by gRPC while reading_
  std::deque<grpc::ByteBuffer> received_;  // the computing thread uses the first while computing_
  std::deque<Reply> replies_;
  Answered q_, k_;
  bool reading_ = false, computing_ = false, writing_ = false;
  bool awaited_ = false;  // a read is pending whose time limit has not begun; it begins when no message is in work
  bool held_up_ = false;  // waiting until an answer is sent
  bool half_closed_ = false;
  bool admitted_ = false;
  bool ended_ = false;

  Timers::Timer time_limit_, receive_limit_;  // declared last: revoked first
};

}  // namespace

std::unique_ptr<Reactor> MakeRotaryStream(Core* core, Rpc* rpc) { return std::make_unique<RotaryCall>(core, rpc); }

}  // namespace posenc::server
