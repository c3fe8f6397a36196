#include "server/grpc/unary_step.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <utility>

#include "google/protobuf/arena.h"
#include "posenc/base/interruption.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "posenc/base/work_pool.h"
#include "posenc/wire/answer.h"
#include "posenc/wire/shared_memory.h"

namespace posenc::server {
namespace {

using wire::Scheduling;

// Requests up to this size, or with as much in shared memory, are served on the receiving thread: 8 MiB and a header.
// That takes less time than a handover to another thread and back. It blocks the receiving thread for at most half a
// millisecond, less than it takes to receive as many bytes.
constexpr size_t kAtOnceBytes = (size_t{8192} + 4) << 10;
// Some values take much longer, such as cosines near the middle of two numbers. Such calls begin again on the pool.
constexpr std::chrono::milliseconds kAtOnceTime(4);
// Bytes besides tensors, such as a config.json, that are parsed on the receiving thread: a tenth of a millisecond.
constexpr size_t kParsedAtOnce = size_t{16} << 10;
// Values in JSON that are parsed on the receiving thread, about a tenth of a millisecond, and by small tasks of the
// pool, two milliseconds: parsing them cannot be interrupted. Settings with lists for 128 pairs (longrope) have 280.
constexpr int64_t kValuesAtOnce = 320, kSmallValues = 4096;
constexpr int64_t kAnyValues = std::numeric_limits<int64_t>::max();
// Up to this size one thread computes alone; waking an idle one takes longer.
constexpr size_t kAloneBytes = (size_t{1024} + 4) << 10;
// A small task of the pool that takes longer, or waits longer for another thread, begins again as a bulk one. For those
// of slow callers it is kAtOnceTime.
constexpr std::chrono::milliseconds kSmallTime(20);
// Calls up to this size use the pool's small-task lane, to avoid waiting behind large calls.
constexpr size_t kSmallBytes = (size_t{256} + 4) << 10;
constexpr size_t kAnySize = std::numeric_limits<size_t>::max();
// Bytes charged before a `decide` job, whose answer size is not known yet. Most such answers fit.
constexpr size_t kDecidedBytes = size_t{16} << 10;

}  // namespace

void UnaryStep::Start() {
  if (method_.scheduling == Scheduling::kImmediate) return Run(kAnySize);
  absl::Status status = call_.Admit();
  const bool at_once = method_.scheduling == Scheduling::kAsSmallAsItsRequest;
  if (status.ok() && at_once && IsWithin(kAtOnceBytes)) {
    status = WithoutExceptions([this] { return ServeAtOnce(); });
    if (!IsWouldBlock(status)) return on_done_(status);
    status = absl::OkStatus();
  }
  if (status.ok()) {
    const bool pooled = method_.scheduling == Scheduling::kPooled || method_.scheduling == Scheduling::kReadsFiles;
    const bool small = !is_slow_ && !pooled && IsWithin(kSmallBytes);
    status = Submit(small ? kSmallBytes : kAnySize);
  }
  if (!status.ok()) on_done_(status);
}

// Returns WouldBlock() if the call must go to the pool.
absl::Status UnaryStep::ServeAtOnce() {
  if (IsOfSlowCaller()) return WouldBlock();
  const NoWorkStealing alone;  // runs no pool tasks, which would delay receiving
  const WaitingLimit no_waiting(std::chrono::milliseconds(0));
  const auto began = std::chrono::steady_clock::now();
  const std::chrono::nanoseconds time = RecentThreadTime(began);
  const absl::Status status = RunLimited(kAtOnceTime, PlanSource::kCacheOnly, kAtOnceBytes);
  // Not all that takes long has interruption points: parsing has none.
  const bool is_late = std::chrono::steady_clock::now() - began > kAtOnceTime && ThreadTime() - time > kAtOnceTime;
  if (is_late) core_->slow_callers.Add(call_.CallerName());
  return status;
}

bool UnaryStep::IsOfSlowCaller() const {
  return core_->slow_callers.Has([this] { return call_.CallerName(); });
}

// Returns WouldBlock() if the step takes too long, or waits so long for another thread.
absl::Status UnaryStep::RunLimited(std::chrono::milliseconds time, PlanSource plan_source, size_t most) {
  call_.LimitStep(time);
  const absl::Status status = RunStep(plan_source, most);
  call_.LimitStep(std::nullopt);
  if (call_.moved_on()) {
    is_slow_ = true;
    core_->slow_callers.Add(call_.CallerName());
  }
  return status;
}

absl::Status UnaryStep::RunStep(PlanSource plan_source, size_t most) {
  return call_.RunStep([&] {
    absl::Status served = Serve(plan_source, most);
    // It can be large: it is not kept while the call is queued or its client is awaited.
    if (!served.ok() && plan_source != PlanSource::kCacheOnly) prepared_ = nullptr;
    return served;
  });
}

// True if request, shared memory and answer have at most `bytes` each. The answer counts once the call is prepared.
bool UnaryStep::IsWithin(size_t bytes) const {
  if (call_.bytes_in() > bytes || static_cast<size_t>(call_.shared_bytes()) > bytes) return false;
  if (prepared_ == nullptr) return true;
  size_t outputs = 0;
  for (const wire::Output& output : prepared_->job.outputs) outputs += output.bytes;
  return outputs <= bytes;
}

absl::Status UnaryStep::Submit(size_t most) {
  call_.WaitForWork();
  const bool may_block = method_.scheduling == Scheduling::kReadsFiles || call_.has_regions_of_other_user();
  const Lane large = may_block ? Lane::kBlocking : Lane::kBulk;
  return WithoutExceptions([this, most, large] {
    call_.Submit([this, most] { Run(most); }, most == kSmallBytes ? Lane::kSmall : large);
    return absl::OkStatus();
  });
}

void UnaryStep::Run(size_t most) {
  absl::Status status = WithoutExceptions([this, most] {
    if (most != kSmallBytes) return RunStep(PlanSource::kCacheOrComputed, most);
    const std::chrono::milliseconds time = IsOfSlowCaller() ? kAtOnceTime : kSmallTime;
    const WaitingLimit waiting(time);
    return RunLimited(time, PlanSource::kCacheOrComputed, most);
  });
  if (IsWouldBlock(status)) {
    status = Submit(kAnySize);
    if (status.ok()) return;
  }
  on_done_(status);
  // The call may be destroyed by now.
}

grpc::ByteBuffer UnaryStep::TakeAnswer() {
  grpc::ByteBuffer answer;  // not the member: a client can delay the call's destruction
  answer.Swap(&answer_);
  return answer;
}

// Returns WouldBlock() if the call exceeds `most`, or with kCacheOnly if it would block.
absl::Status UnaryStep::Serve(PlanSource plan_source, size_t most) {
  call_.BeginWork();
  POSENC_RETURN_IF_ERROR(call_.StillWanted());
  if (prepared_ == nullptr) {
    POSENC_ASSIGN_OR_RETURN(prepared_, Prepare(plan_source, most));
  }
  if (!IsWithin(most) || (most != kAnySize && call_.has_regions_of_other_user())) return WouldBlock();
  const bool was_slow = prepared_->is_slow;
  if (was_slow) is_slow_ = true;
  if (most != kAnySize && is_slow_) return WouldBlock();
  // A job that overwrites its own input can begin again only until its first write.
  const bool at_the_end = most != kAnySize && prepared_->in_place && prepared_->job.make_quick_run;
  const bool may_begin_again = most != kAnySize && (!prepared_->in_place || at_the_end);
  if (plan_source == PlanSource::kCacheOnly && !may_begin_again) return WouldBlock();
  std::optional<WaitingLimit> unlimited;
  if (!may_begin_again) {
    call_.LimitStep(std::nullopt);
    unlimited.emplace(std::nullopt);
  }
  TaskOwner owner;
  std::optional<NoWorkStealing> helped;
  if (plan_source == PlanSource::kCacheOnly && !IsWithin(kAloneBytes)) {
    owner = call_.owner();
    helped.emplace(Help::kIdleThreads, &owner);
  }
  const auto prepared = std::move(prepared_);  // freed before the client takes the answer
  const auto began = was_slow || at_the_end ? ThreadTime() : std::chrono::nanoseconds(0);
  const absl::Status status = RunJob(*prepared, at_the_end ? Call::Writing::kAtTheEnd : Call::Writing::kAnyTime);
  if (IsWouldBlock(status) ? call_.moved_on() : at_the_end && ThreadTime() - began > kAtOnceTime) {
    prepared->is_slow = true;
  } else if (was_slow && status.ok() && ThreadTime() - began < kAtOnceTime / 2) {
    prepared->is_slow = false;  // the tables were in the cache
  }
  return status;
}

absl::Status UnaryStep::RunJob(const Prepared& prepared, Call::Writing writing) {
  try {
    if (prepared.job.decide) return Decide(prepared);
    if (method_.with_id == nullptr) return Compute(prepared, prepared.layout, writing);
    return Compute(prepared, method_.with_id(prepared.layout, call_.request_id()), writing);
  } catch (const ComputationStopped& stopped) {
    return stopped.status();
  }
}

absl::Status UnaryStep::Compute(const Prepared& prepared, const wire::Answer& layout, Call::Writing writing) {
  std::shared_ptr<Charge> charge;
  if (method_.scheduling != Scheduling::kImmediate) {
    POSENC_ASSIGN_OR_RETURN(charge, call_.ChargeAnswer(layout.buffer_size()));
  }
  POSENC_RETURN_IF_ERROR(call_.Compute(prepared.job, call_.payloads(), layout, std::move(charge), &answer_, writing));
  call_.CountTensors(prepared.job.outputs, prepared.device);
  return absl::OkStatus();
}

// The answer's size is known only after the work. Charging first reports overload early, except for long answers.
absl::Status UnaryStep::Decide(const Prepared& prepared) {
  POSENC_ASSIGN_OR_RETURN(auto charge, call_.ChargeAnswer(kDecidedBytes));
  POSENC_RETURN_IF_ERROR(prepared.job.decide(core_->pool, [this] { return call_.CountStep(); }));
  // A search passes over what cannot be computed. Its answer is whole only if the limits have not stopped any of it.
  POSENC_RETURN_IF_ERROR(call_.CountStep());
  POSENC_ASSIGN_OR_RETURN(const wire::Answer layout, wire::Answer::LayOut(prepared.response, {}));
  if (layout.buffer_size() > kDecidedBytes) {
    POSENC_ASSIGN_OR_RETURN(charge, call_.ChargeAnswer(layout.buffer_size()));
  }
  return call_.Compute(prepared.job, call_.payloads(), layout, std::move(charge), &answer_);
}

// Keeps only calls that kCacheOnly allows in recent_calls: slow ones must go to the pool each time.
absl::StatusOr<std::shared_ptr<const Prepared>> UnaryStep::Prepare(PlanSource plan_source, size_t most) {
  const wire::CallContext context(core_->config.limits, plan_source, core_->devices);
  const bool receiving = !context.may_block() || method_.scheduling == Scheduling::kImmediate;
  auto copied = call_.Strip(method_.rpc.request_stripper, receiving ? kParsedAtOnce : wire::kMaxStrippedBytes);
  if (!context.may_block() && absl::IsResourceExhausted(copied.status())) return WouldBlock();
  POSENC_ASSIGN_OR_RETURN(std::string stripped, std::move(copied));
  if (method_.take_id != nullptr) call_.SetRequestId(method_.take_id(&stripped));
  const bool recent_calls = method_.key != nullptr && !context.may_block();
  const std::shared_ptr<const void> key = recent_calls ? method_.key(call_.rpc()) : nullptr;
  if (recent_calls) {
    auto [recent, request_id] = core_->recent_calls.Find(key.get(), stripped, call_.payloads());
    if (recent != nullptr) {
      if (method_.take_id != nullptr) request_id = call_.request_id();
      if (recent->on_end) call_.Observe(recent->on_end);
      POSENC_RETURN_IF_ERROR(call_.Accept(*recent->request, std::move(request_id), recent->has_regions));
      if (call_.copies() == recent->copies) {
        CurrentMemoryAccount()->Add(recent->bytes);  // held by the call also when recent_calls has dropped it
        return std::move(recent);
      }
    }
  }
  const int64_t held = CurrentMemoryAccount()->held();
  const auto prepared = std::make_shared<Prepared>();
  prepared->key = key;
  const int64_t most_values = !context.may_block() ? kValuesAtOnce : most != kAnySize ? kSmallValues : kAnyValues;
  POSENC_ASSIGN_OR_RETURN(const UnaryMethod::Prepare prepare,
                          method_.read(stripped, most_values, &call_, prepared.get()));
  // Regions can be large although the request is small, and preparing reads some of them.
  if (!IsWithin(most) || (most != kAnySize && call_.has_regions_of_other_user())) return WouldBlock();
  prepared->copies = call_.copies();
  POSENC_RETURN_IF_ERROR(prepare(context));
  prepared->has_regions = call_.has_regions();
  prepared->in_place = prepared->has_regions && wire::IsInPlace(*prepared->request);
  if (prepared->response != nullptr) prepared->device = DeviceOf(*prepared->response);
  prepared->bytes = CurrentMemoryAccount()->held() - held;
  // All that was copied from shared memory must be known, because it may change.
  if (recent_calls && call_.copied_bytes() == static_cast<int64_t>(prepared->copies.size())) {
    std::string id = method_.take_id != nullptr ? "" : call_.request_id();
    core_->recent_calls.Keep(prepared, std::move(stripped), std::move(id), call_.payloads());
  }
  return prepared;
}

}  // namespace posenc::server
