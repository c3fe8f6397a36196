// What every call goes through, whatever its method: admission, parsing, an answer's memory, and the last word.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "posenc/base/work_pool.h"
#include "posenc/rotary/rotary_plan.h"
#include "posenc/rotary/slab_table.h"
#include "posenc/service/operations.h"
#include "posenc/transport/slices.h"
#include "posenc/wire/answer.h"
#include "posenc/wire/shared_memory.h"
#include "posenc/wire/walker.h"
#include "server/core/admission.h"
#include "server/core/answer_pool.h"
#include "server/core/config.h"
#include "server/core/timers.h"
#include "server/grpc/recent_calls.h"
#include "server/grpc/rpc.h"

namespace posenc::server {

// Shared by all calls; outlives them.
struct Core {
  explicit Core(const Config& with)
      : config(with),
        admission(Admission::Create(config.max_in_flight_requests, config.max_in_flight_bytes)),
        answer_pool(std::make_shared<AnswerPool>(static_cast<size_t>(config.answer_pool_bytes))),
        pool(static_cast<size_t>(config.threads)) {
    PlanCache().SetMaxBytes(static_cast<size_t>(config.plan_cache_bytes));
    TableCache().SetMaxBytes(static_cast<size_t>(config.table_cache_bytes));
  }

  const Config config;
  const std::shared_ptr<Admission> admission;
  const std::shared_ptr<AnswerPool> answer_pool;
  std::shared_ptr<const wire::SharedMemorySource> memory;  // null: shared memory is off
  RecentCalls recent_calls;
  WorkPool pool;
  Timers timers;
};

absl::Status StatusOfCurrentException();

// Runs `serve`, turning what it throws into a status: nothing may escape into gRPC's or the pool's threads.
template <typename Serve>
absl::Status WithoutExceptions(Serve&& serve) {
  try {
    return serve();
  } catch (...) {
    return StatusOfCurrentException();
  }
}

// Lives from the handler's entry until gRPC is done with the call. Not thread-safe but for Cancel(): the threads of a
// call take turns.
class Call {
 public:
  // Takes the request's slices over, so that they can be released before the answer is. Null: they are still to come.
  Call(Core* core, std::string_view method, Rpc* rpc, grpc::ByteBuffer* request);

  // INVALID_ARGUMENT where there is no message, RESOURCE_EXHAUSTED for one that is too large, UNAVAILABLE in overload
  // and drain.
  absl::Status Admit();
  // The same before there is a message.
  absl::Status AdmitStream();
  // RESOURCE_EXHAUSTED for a message that is too large.
  absl::Status CheckSize(size_t bytes) const;
  // What an admission's verdict on so many bytes, which are asked for together, is for the caller.
  absl::Status Refuse(Admission::Verdict verdict, size_t bytes);

  size_t bytes_in() const { return bytes_in_; }
  // Of a message of a stream.
  void CountIn(size_t bytes) { bytes_in_ += bytes; }

  // The time until the first work is the queue's, and all that the call waits for work once more; `compute` is the sum
  // of the work's.
  void BeginWork();
  void WaitForWork();
  void EndWork();

  // Around the time in which the client must take a message. When --send-timeout is over, the call is cancelled.
  void BeginSend();
  void EndSend() { send_timer_.Revoke(); }

  // Whether the caller still waits, and there is time. Thread-safe.
  absl::Status StillWanted() const;
  // Runs a step of the call's work: it is interrupted once StillWanted() is not OK, and exceptions become statuses.
  template <typename Step>
  absl::Status RunStep(Step&& step) {
    const Cancellation cancelled = [this] { return StillWanted(); };
    return WithoutExceptions([&] { return RunInterruptibly(cancelled, step); });
  }
  // --max-call-seconds after the call's beginning.
  std::chrono::steady_clock::time_point LatestEnd() const;

  // The request without its tensors' bytes, which stay in its slices: payloads() knows them.
  absl::StatusOr<std::string> Strip(const wire::Stripper& stripper);
  absl::Status Parse(const std::string& stripped, google::protobuf::Message* request);
  // Instead of Parse(), where it is known what that would give.
  absl::Status Accept(const google::protobuf::Message& request, std::string request_id, bool has_regions);
  const std::string& request_id() const { return request_id_; }
  const transport::SlicedPayloads& payloads() const { return *payloads_; }
  bool has_regions() const { return regions_.has_value(); }
  // What the call reads beside its message, and what of it is copied.
  int64_t shared_bytes() const { return regions_ ? regions_->read_bytes() : 0; }
  int64_t copied_bytes() const { return regions_ ? regions_->copied_bytes() : 0; }

  // Bytes of an answer: charged, so UNAVAILABLE or RESOURCE_EXHAUSTED where they do not fit.
  absl::StatusOr<std::shared_ptr<Charge>> ChargeAnswer(size_t bytes);
  // Allocates the answer and computes it, from these payloads. Throws std::bad_alloc.
  absl::Status Compute(const wire::Job& job, const wire::Payloads& payloads, const wire::Answer& layout,
                       std::shared_ptr<Charge> charge, grpc::ByteBuffer* answer);
  // The request's bytes are no longer needed.
  void ReleaseRequest();

  // Trailers, counters and the log line. The result is for Finish(), which begins to send: the call may then be gone.
  grpc::Status End(const absl::Status& status);

 private:
  using Clock = std::chrono::steady_clock;
  absl::Status FindRegions(const google::protobuf::Message& request);
  void LogEnd(const absl::Status& status) const;

  Core* const core_;
  const std::string_view method_;
  Rpc* const rpc_;
  const Charge handler_;
  Charge request_charge_;
  Charge request_bytes_charge_;
  grpc::ByteBuffer request_;
  const bool valid_;
  size_t bytes_in_;
  std::optional<wire::RequestRegions> regions_;
  Charge copied_charge_;  // of what is copied from them
  std::optional<transport::SlicedPayloads> payloads_;
  std::string request_id_;
  std::atomic<bool> given_up_{false};
  bool started_ = false;
  bool refused_ = false;
  size_t bytes_out_ = 0;
  const Clock::time_point entered_;
  Clock::time_point waits_since_;
  Clock::time_point work_began_;
  Clock::duration queued_{0};
  Clock::duration computed_{0};
  // Last, so that it is revoked first: the RPC is there as long as its reactor.
  Timers::Timer send_timer_;
};

}  // namespace posenc::server
