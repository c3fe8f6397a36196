// Steps common to the calls of all methods: admission, parsing, the answer's memory, and the final status.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/message.h"
#include "grpcpp/support/byte_buffer.h"
#include "posenc/base/busy_threads.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/work_pool.h"
#include "posenc/rotary/rotary_plan.h"
#include "posenc/rotary/slab_table.h"
#include "posenc/service/operations.h"
#include "posenc/transport/slices.h"
#include "posenc/wire/answer.h"
#include "posenc/wire/parse.h"
#include "posenc/wire/rpcs.h"
#include "posenc/wire/shared_memory.h"
#include "posenc/wire/walker.h"
#include "server/calls/recent_calls.h"
#include "server/calls/rpc.h"
#include "server/core/admission.h"
#include "server/core/buffer_pool.h"
#include "server/core/config.h"
#include "server/core/timers.h"
#include "server/listen/peer.h"
#include "server/metrics/call_metrics.h"
#include "server/metrics/load_meter.h"
#include "server/trace/tracer.h"

namespace posenc::server {

// State shared by all calls. Must outlive them.
struct Core {
  explicit Core(const Config& with)
      : config(with),
        admission(std::make_unique<Admission>(config.max_in_flight_requests, config.max_in_flight_bytes)),
        buffer_pool(std::make_shared<BufferPool>(static_cast<size_t>(config.answer_pool_bytes))),
        io_threads(static_cast<size_t>(config.io_threads)),
        http_threads(static_cast<size_t>(config.io_threads)),
        pool(static_cast<size_t>(config.threads)) {
    PlanCache().SetMaxBytes(static_cast<size_t>(config.plan_cache_bytes));
    TableCache().SetMaxBytes(static_cast<size_t>(config.table_cache_bytes));
  }

  const Config config;
  prometheus::Registry metrics_registry;
  CallMetrics metrics{&metrics_registry};
  const std::unique_ptr<Admission> admission;
  const std::shared_ptr<BufferPool> buffer_pool;
  std::shared_ptr<const wire::SharedMemorySource> memory;  // null: shared memory is off
  const Devices* devices = nullptr;                        // other than the CPU; null: none
  // When a drain ends the calls that still compute.
  std::atomic<std::chrono::steady_clock::time_point> computing_ends = std::chrono::steady_clock::time_point::max();
  // Threads that receive calls and compute small ones: over gRPC, and over HTTP.
  BusyThreads io_threads, http_threads;
  std::unique_ptr<Tracer> tracer;  // null: nothing is traced
  // Number of threads that have been in one task for longer than --stuck-thread-seconds.
  size_t CountStuckThreads() const {
    const std::chrono::seconds time(config.stuck_thread_s);
    return pool.CountLongTasks(time) + io_threads.CountLongerThan(time) + http_threads.CountLongerThan(time);
  }
  RecentCalls recent_calls;
  WorkPool pool;
  LoadMeter load{[this] { return CountLoad(); }};
  Timers timers;

 private:
  LoadMeter::Counts CountLoad() const;
};

// The device that an answer's info names. Empty if the answer has no info.
std::string DeviceOf(const google::protobuf::Message& response);

// Converts the exception being handled: UNAVAILABLE for std::bad_alloc, else INTERNAL.
absl::Status StatusOfCurrentException();

// Runs `serve` and converts exceptions to a status: none may escape into gRPC's or the pool's threads.
template <typename Serve>
absl::Status WithoutExceptions(Serve&& serve) {
  try {
    return serve();
  } catch (...) {
    return StatusOfCurrentException();
  }
}

// Returns the processor time of this thread.
inline std::chrono::nanoseconds ThreadTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

// One call, from the handler's entry until gRPC is done with it. Not thread-safe except for StillWanted(): the threads
// of a call take turns.
class Call {
 public:
  enum class Kind { kUnary, kStream };  // limited by --max-call-seconds or --max-stream-seconds

  // Takes ownership of the request's slices, to release them before the answer. `request` is null for streams, whose
  // messages come later.
  Call(Core* core, const wire::RpcDescription& method, Rpc* rpc, grpc::ByteBuffer* request, Kind kind);

  // Returns INVALID_ARGUMENT if there is no message, RESOURCE_EXHAUSTED if it is too large, UNAVAILABLE under overload
  // or while draining.
  absl::Status Admit();
  // Admits a stream at its first message; a drain does not wait for it before. Returns UNAVAILABLE under overload or
  // while draining.
  absl::Status AdmitStream();
  // Returns RESOURCE_EXHAUSTED if a message of so many bytes is too large.
  absl::Status CheckSize(size_t bytes) const;
  // Converts a verdict to the caller's status. `bytes`: all bytes requested together, for the error text.
  absl::Status Refuse(Admission::Verdict verdict, int64_t bytes);

  bool was_admitted() const { return admitted_; }
  size_t bytes_in() const { return bytes_in_; }
  // The call's caller and connection, whose tasks take turns in the pool.
  TaskOwner owner() const;
  // Submits a task of the call's caller to the pool. Throws std::bad_alloc.
  void Submit(std::function<void()> task, Lane lane = Lane::kBulk);
  // Frees what a stream has made of its request, then returns its charge. Call it before End(). If it is much, a task
  // of the pool does so, for which the stream's end does not wait: freeing millions of blocks takes a tenth of a
  // second, in which a receiving thread would serve nobody.
  template <typename Memory>
  void Free(Memory memory) {
    struct Held {
      Charge charge;
      Memory memory;  // destroyed first
    };
    Held held{std::move(memory_charge_), std::move(memory)};
    if (memory_.held() <= kFreedAtOnce || core_->pool.RunsTask()) return;  // this thread can free it
    const auto submit = [&] {
      core_->pool.Submit([later = std::make_shared<Held>(std::move(held))]() mutable { later.reset(); });
      return absl::OkStatus();
    };
    WithoutExceptions(submit).IgnoreError();  // without memory for the task, this thread has freed it
  }
  // The call is charged to this caller.
  const Caller& caller() const { return caller_; }
  // A step of a stream has charged the bytes of its message: they count if its memory can never fit beside them.
  void HoldMessage(size_t bytes) { message_bytes_ = static_cast<int64_t>(bytes); }
  // Adds the bytes of a stream's message to bytes_in().
  void CountIn(size_t bytes) { bytes_in_ += bytes; }

  // Timing for the server-timing trailer. `queue`: time from entry to the first BeginWork(), and from WaitForWork() to
  // the next. `compute`: total time from BeginWork() to EndWork(), on the same thread, without that of other calls
  // which it ran in between.
  void BeginWork();
  void WaitForWork();
  void EndWork();

  // Enclose the time in which the client must take a message. The call is cancelled after --send-timeout.
  void BeginSend();
  void EndSend() { send_timer_.Revoke(); }

  // Returns DEADLINE_EXCEEDED or CANCELLED if the caller no longer waits, DATA_LOSS if shared memory is damaged.
  // Thread-safe.
  absl::Status StillWanted() const;
  // Runs a step of the call's work: a unary call, or one message of a stream. Interrupts it once StillWanted() is not
  // OK; converts exceptions to a status. Charges the memory that it holds: UNAVAILABLE or RESOURCE_EXHAUSTED if that
  // does not fit. Returns RESOURCE_EXHAUSTED if it costs more than --max-call-cost.
  template <typename Step>
  absl::Status RunStep(Step&& step) {
    const Cancellation cancelled = [this] {
      core_->pool.GiveWay();
      return CountStep();
    };
    cost_ = 0;
    message_bytes_ = 0;
    const MemoryScope counted(&memory_);
    const absl::Status status = WithoutExceptions([&] { return RunInterruptibly(cancelled, step); });
    return EndStep(status);
  }
  // StillWanted() for computations: also counts a step of theirs, unless the thread waits for others. Returns
  // RESOURCE_EXHAUSTED above --max-call-cost, and WouldBlock() after the time that a step may take here.
  absl::Status CountStep() const;
  // Sets how long RunStep() may take on this thread from now on, and as much processor time after that: the thread may
  // have waited for a processor. nullopt: any time. No other thread may help meanwhile.
  void LimitStep(std::optional<std::chrono::milliseconds> time);
  // True if the time of the last limit was over.
  bool moved_on() const { return moves_on_; }
  // The latest time at which the call ends: --max-call-seconds or --max-stream-seconds after its entry.
  std::chrono::steady_clock::time_point LatestEnd() const;

  // True if the request is compressed. Strip() decompresses it, which takes long: on a thread of the pool.
  bool is_compressed() const { return is_compressed_; }
  // Decompresses a message if it is compressed. Within RunStep().
  absl::Status Decompress(grpc::ByteBuffer* message);
  // Returns the request without its tensors' bytes, which stay in its slices, accessible through payloads().
  // RESOURCE_EXHAUSTED if it has more than max_bytes.
  absl::StatusOr<std::string> Strip(const wire::Stripper& stripper, size_t max_bytes = wire::kMaxStrippedBytes);
  absl::Status Parse(const std::string& stripped, google::protobuf::Message* request);
  // Replaces Parse() if its result is already known.
  absl::Status Accept(const google::protobuf::Message& request, std::string request_id, bool has_regions);
  const std::string& request_id() const { return request_id_; }
  void SetRequestId(std::string id) { request_id_ = std::move(id); }
  const transport::SlicedPayloads& payloads() const { return *payloads_; }
  transport::SlicedPayloads& payloads() { return *payloads_; }
  const Rpc& rpc() const { return *rpc_; }
  // The call is the whole RPC, and its threads take turns: its phases become those of the RPC's span.
  void TracePhases() {
    traced_ = rpc_->span();
    Enter(Phase::kQueue);
  }
  void BeginComputing() { Enter(Phase::kCompute); }
  void SetModel(const std::string& name) {
    if (traced_ != nullptr) model_ = name;
  }
  bool has_regions() const { return regions_.has_value(); }
  // True if some of the request's shared memory is another user's, who can delay threads that touch it.
  bool has_regions_of_other_user() const { return regions_ && regions_->of_other_user(); }
  // Bytes of tensors in shared memory, and those among them that are copied: their number, and if they are few, what
  // they were when the request was accepted (wire::RequestRegions).
  int64_t shared_bytes() const { return regions_ ? regions_->read_bytes() : 0; }
  int64_t copied_bytes() const { return regions_ ? regions_->copied_bytes() : 0; }
  std::string_view copies() const { return regions_ ? std::string_view(regions_->copies()) : std::string_view(); }

  // Charges the bytes of an answer. Returns UNAVAILABLE or RESOURCE_EXHAUSTED if they do not fit.
  absl::StatusOr<std::shared_ptr<Charge>> ChargeAnswer(size_t bytes);
  // Allocates the answer and lets `run` fill its outputs from `payloads`. A null run: there are no outputs. Throws
  // std::bad_alloc.
  absl::Status Compute(const wire::Job::Run& run, const std::vector<wire::Output>& outputs,
                       const wire::Payloads& payloads, const wire::Answer& layout, std::shared_ptr<Charge> charge,
                       grpc::ByteBuffer* answer);
  // Counts the tensors of an answer, by their types and the device that computed them; empty: the CPU.
  void CountTensors(const std::vector<wire::Output>& outputs, const std::string& device);
  void CountTensor(v1::DataType dtype, const std::string& device, size_t bytes);
  // Frees the request's bytes, leaves its shared memory, and returns their charges. What was made of them stays.
  void ReleaseRequest();

  void Observe(OnCallEnd on_end) { on_end_ = std::move(on_end); }

  // Counts and logs the end, and returns the status to report. For a part of an RPC; others use End().
  absl::Status Conclude(const absl::Status& status);
  // Concludes the call and sets trailers. Pass the result to Finish(), during which the call may be destroyed.
  grpc::Status End(const absl::Status& status);

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int64_t kFreedAtOnce = 1 << 20;

  // Bytes charged for the request, for what was made of it, and for the answer.
  int64_t held() const {
    return request_memory_ + static_cast<int64_t>(answer_bytes_) + message_bytes_ + memory_.charged();
  }
  absl::Status EndStep(const absl::Status& status);
  bool MovesOn() const;
  absl::Status FindRegions(const google::protobuf::Message& request);
  // Returns the caller's traceparent and request_id in trailers.
  void AddTraceTrailers();
  void Enter(Phase phase) {
    if (traced_ != nullptr) traced_->Enter(phase);
  }
  // Says in the RPC's span what the call was.
  void DescribeIn(CallSpan* span) const;
  void LogEnd(const absl::Status& status);

  Core* const core_;
  const std::string_view method_;
  MethodMetrics* const metrics_;
  Rpc* const rpc_;
  const Caller caller_;
  RequestInProgress in_progress_;
  Charge request_charge_;
  Charge request_bytes_charge_;
  grpc::ByteBuffer request_;
  const bool valid_;
  bool is_compressed_;
  size_t bytes_in_;
  int64_t request_memory_;  // bytes of the request and of gRPC's list of its slices; 0 once it is released
  std::optional<wire::RequestRegions> regions_;
  Charge memory_charge_;
  Admission::Verdict memory_verdict_ = Admission::Verdict::kAdmitted;
  int64_t memory_asked_ = 0;                            // held() and the bytes of the last charge
  int64_t kept_ = std::numeric_limits<int64_t>::max();  // bytes of memory after a stream's first step
  MemoryAccount memory_;
  std::optional<transport::SlicedPayloads> payloads_;
  size_t answer_bytes_ = 0;  // charged
  int64_t message_bytes_ = 0;
  std::string request_id_;
  std::string traceparent_;
  CallSpan* traced_ = nullptr;                      // whose phases follow this call
  v1::DataType dtype_ = v1::DATA_TYPE_UNSPECIFIED;  // of the last tensor of an answer, and what computed it
  std::string device_, model_;
  OnCallEnd on_end_;
  std::atomic<bool> given_up_{false};
  mutable std::atomic<int64_t> cost_{0};
  bool admitted_ = false;
  bool started_ = false;
  bool refused_ = false;
  size_t bytes_out_ = 0;
  const Kind kind_;
  const Clock::time_point entered_;
  Clock::time_point moves_on_at_ = Clock::time_point::max();
  std::chrono::milliseconds step_time_{0};
  mutable std::optional<std::chrono::nanoseconds> late_since_;  // ThreadTime() then
  mutable bool moves_on_ = false;
  Clock::time_point waits_since_;
  Clock::time_point work_began_;
  Clock::duration of_others_{0};  // WorkPool::TimeBetweenSlabs() then
  Clock::duration queued_{0};
  Clock::duration computed_{0};
  // Declared last, so that it is revoked first. The RPC outlives its reactor.
  Timers::Timer send_timer_;
};

}  // namespace posenc::server
