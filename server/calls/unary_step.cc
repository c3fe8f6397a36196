#include "server/calls/unary_step.h"

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

// Rotations up to this size, or with as much in shared memory, are served on the receiving thread: 8 MiB and a header.
// That takes less time than a handover to another thread and back. It blocks the receiving thread for at most half a
// millisecond, less than it takes to receive as many bytes.
constexpr size_t kAtOnceBytes = (size_t{8192} + 4) << 10;
// Before its first write, a rotation may take so long there. Some values take much longer than others, such as cosines
// near the middle of two numbers.
constexpr std::chrono::milliseconds kAtOnceTime(4);
// Bytes besides tensors that are parsed there, and values in JSON, whose parsing cannot be interrupted: each a tenth of
// a millisecond. Settings with lists for 128 pairs (longrope) have 280 values.
constexpr size_t kParsedAtOnce = size_t{16} << 10;
constexpr int64_t kValuesAtOnce = 320;
// Up to this size one thread computes alone; waking an idle one takes longer.
constexpr size_t kAloneBytes = (size_t{1024} + 4) << 10;
// Calls up to this size use the pool's small lane, to avoid waiting behind large calls.
constexpr size_t kSmallBytes = (size_t{256} + 4) << 10;
// Compressed requests up to this size do, too: they have at most a thousand times as many bytes.
constexpr size_t kSmallCompressed = size_t{4} << 10;
// Bytes charged before a `decide` job, whose answer size is not known yet. Most such answers fit.
constexpr size_t kDecidedBytes = size_t{16} << 10;
constexpr int64_t kAnyValues = std::numeric_limits<int64_t>::max();

Lane LaneOf(UnaryStep::Place place) {
  switch (place) {
    case UnaryStep::Place::kSmallLane: return Lane::kSmall;
    case UnaryStep::Place::kBlockingLane: return Lane::kBlocking;
    default: return Lane::kBulk;
  }
}

}  // namespace

void UnaryStep::Start() {
  const absl::Status status = is_immediate() ? absl::OkStatus() : call_.Admit();
  if (!status.ok()) return on_done_(status);
  GoTo(PlaceOf());
}

// From what is known of the call so far: its sizes, then its shared memory, then its answer.
UnaryStep::Place UnaryStep::PlaceOf() const {
  if (call_.is_compressed()) return call_.bytes_in() <= kSmallCompressed ? Place::kSmallLane : Place::kBulkLane;
  if (is_immediate()) return Place::kReceivingThread;
  if (method_.scheduling == Scheduling::kReadsFiles || call_.has_regions_of_other_user()) return Place::kBlockingLane;
  if (method_.scheduling == Scheduling::kPooled || has_long_json_) return Place::kBulkLane;
  const size_t bytes = MostBytes();
  const bool may_stay = method_.scheduling == Scheduling::kAsSmallAsItsRequest && !left_ && bytes <= kAtOnceBytes;
  const bool is_quick = !is_prepared() || (prepared_->job.make_quick_run && !prepared_->is_slow);
  if (may_stay && is_quick) return Place::kReceivingThread;
  return bytes <= kSmallBytes ? Place::kSmallLane : Place::kBulkLane;
}

// The most bytes of the request, its shared memory, and its answer once that is known.
size_t UnaryStep::MostBytes() const {
  size_t outputs = 0;
  if (is_prepared()) {
    for (const wire::Output& output : prepared_->job.outputs) outputs += output.bytes;
  }
  return std::max({call_.bytes_in(), static_cast<size_t>(call_.shared_bytes()), outputs});
}

void UnaryStep::GoTo(Place place) {
  if (place == Place::kReceivingThread) return Run(place);
  call_.WaitForWork();
  const absl::Status status = WithoutExceptions([this, place] {
    call_.Submit([this, place] { Run(place); }, LaneOf(place));
    return absl::OkStatus();
  });
  if (!status.ok()) on_done_(status);
}

void UnaryStep::Run(Place here) {
  const absl::Status status =
      WithoutExceptions([&] { return is_limited(here) ? RunLimited() : call_.RunStep([&] { return Serve(here); }); });
  if (IsWouldBlock(status)) {
    left_ = true;
    return GoTo(PlaceOf());
  }
  // It can be large, and a client can delay the call's destruction.
  stripped_.reset();
  prepare_ = nullptr;
  reading_ = nullptr;
  prepared_ = nullptr;
  on_done_(status);  // the call may be destroyed by now
}

// Runs no tasks of the pool, which would delay receiving, and waits for no other thread.
absl::Status UnaryStep::RunLimited() {
  const NoWorkStealing alone;
  const WaitingLimit no_waiting(std::chrono::milliseconds(0));
  call_.LimitStep(kAtOnceTime);
  const absl::Status status = call_.RunStep([this] { return Serve(Place::kReceivingThread); });
  call_.LimitStep(std::nullopt);
  return status;
}

grpc::ByteBuffer UnaryStep::TakeAnswer() {
  grpc::ByteBuffer answer;  // not the member: a client can delay the call's destruction
  answer.Swap(&answer_);
  return answer;
}

// Returns WouldBlock() if the call must go on elsewhere (PlaceOf). What was made of it until then is kept.
absl::Status UnaryStep::Serve(Place here) {
  call_.BeginWork();
  POSENC_RETURN_IF_ERROR(call_.StillWanted());
  POSENC_RETURN_IF_ERROR(Read(here));
  POSENC_RETURN_IF_ERROR(Prepare(here));
  if (PlaceOf() > here) return WouldBlock();
  return RunJob(here);
}

absl::Status UnaryStep::RunJob(Place here) {
  const Prepared& prepared = *prepared_;
  call_.BeginComputing();
  try {
    if (prepared.job.decide) return Decide(prepared);
    const auto began = std::chrono::steady_clock::now();
    wire::Job::Run quick;
    TaskOwner owner;
    std::optional<NoWorkStealing> helped;
    if (is_limited(here)) {
      quick = MakeQuickRun();
      if (MostBytes() > kAloneBytes) {
        owner = call_.owner();
        helped.emplace(Help::kIdleThreads, &owner);
      }
    }
    const wire::Job::Run& run = quick ? quick : prepared.job.run;
    POSENC_RETURN_IF_ERROR(method_.with_id == nullptr
                               ? Compute(run, prepared.layout)
                               : Compute(run, method_.with_id(prepared.layout, call_.request_id())));
    // The tables that took long for an earlier call are in the cache now.
    const bool was_quick = !call_.moved_on() && std::chrono::steady_clock::now() - began < kAtOnceTime / 2;
    if (prepared.is_slow && was_quick) prepared.is_slow = false;
    return absl::OkStatus();
  } catch (const ComputationStopped& stopped) {
    return stopped.status();
  }
}

// Throws ComputationStopped with WouldBlock() if the tables take too long here.
wire::Job::Run UnaryStep::MakeQuickRun() {
  try {
    wire::Job::Run quick = prepared_->job.make_quick_run();
    call_.LimitStep(std::nullopt);  // what is left takes as long as a copy, and may overwrite its own input
    return quick;
  } catch (const ComputationStopped& stopped) {
    if (IsWouldBlock(stopped.status()) && call_.moved_on()) prepared_->is_slow = true;
    throw;
  }
}

absl::Status UnaryStep::Compute(const wire::Job::Run& run, const wire::Answer& layout) {
  std::shared_ptr<Charge> charge;
  if (!is_immediate()) {
    POSENC_ASSIGN_OR_RETURN(charge, call_.ChargeAnswer(layout.buffer_size()));
  }
  const std::vector<wire::Output>& outputs = prepared_->job.outputs;
  POSENC_RETURN_IF_ERROR(call_.Compute(run, outputs, call_.payloads(), layout, std::move(charge), &answer_));
  call_.CountTensors(outputs, prepared_->device);
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
  return call_.Compute(nullptr, {}, call_.payloads(), layout, std::move(charge), &answer_);
}

// Parses the request, or finds what was prepared for one like it.
absl::Status UnaryStep::Read(Place here) {
  if (reading_ != nullptr || prepared_ != nullptr) return absl::OkStatus();
  const bool limited = is_limited(here);
  if (!stripped_) {
    const size_t most = here == Place::kReceivingThread ? kParsedAtOnce : wire::kMaxStrippedBytes;
    auto stripped = call_.Strip(method_.rpc.request_stripper, most);
    if (limited && absl::IsResourceExhausted(stripped.status())) return WouldBlock();
    POSENC_ASSIGN_OR_RETURN(stripped_, std::move(stripped));
    if (method_.take_id != nullptr) call_.SetRequestId(method_.take_id(&*stripped_));
  }
  const bool may_be_recent = limited && method_.key != nullptr;
  const std::shared_ptr<const void> key = may_be_recent ? method_.key(call_.rpc()) : nullptr;
  if (may_be_recent) {
    POSENC_RETURN_IF_ERROR(FindRecent(key.get()));
    if (prepared_ != nullptr) return absl::OkStatus();
  }
  const int64_t held = CurrentMemoryAccount()->held();
  auto reading = std::make_shared<Prepared>();
  reading->key = key;
  auto prepare = method_.read(*stripped_, limited ? kValuesAtOnce : kAnyValues, &call_, reading.get());
  has_long_json_ = IsWouldBlock(prepare.status());
  POSENC_ASSIGN_OR_RETURN(prepare_, std::move(prepare));
  reading->bytes = -held;
  reading_ = std::move(reading);
  return absl::OkStatus();
}

absl::Status UnaryStep::FindRecent(const void* key) {
  auto [recent, request_id] = core_->recent_calls.Find(key, *stripped_, call_.payloads());
  if (recent == nullptr) return absl::OkStatus();
  if (method_.take_id != nullptr) request_id = call_.request_id();
  if (recent->on_end) call_.Observe(recent->on_end);
  call_.SetModel(recent->model);
  POSENC_RETURN_IF_ERROR(call_.Accept(*recent->request, std::move(request_id), recent->has_regions));
  if (call_.copies() != recent->copies) return absl::OkStatus();
  CurrentMemoryAccount()->Add(recent->bytes);  // held by the call also when recent_calls has dropped it
  prepared_ = std::move(recent);
  return absl::OkStatus();
}

// Keeps only calls that the receiving thread has prepared in recent_calls: others go to the pool each time.
absl::Status UnaryStep::Prepare(Place here) {
  if (prepared_ != nullptr) return absl::OkStatus();
  // Regions can be large although the request is small, and preparing reads some of them.
  if (PlaceOf() > here) return WouldBlock();
  const bool limited = is_limited(here);
  reading_->copies = call_.copies();
  POSENC_RETURN_IF_ERROR(prepare_(wire::CallContext(
      core_->config.limits, limited ? PlanSource::kCacheOnly : PlanSource::kCacheOrComputed, core_->devices)));
  reading_->has_regions = call_.has_regions();
  if (reading_->response != nullptr) reading_->device = DeviceOf(*reading_->response);
  reading_->bytes += CurrentMemoryAccount()->held();
  prepare_ = nullptr;
  prepared_ = std::move(reading_);
  // All that was copied from shared memory must be known, because it may change.
  if (prepared_->key != nullptr && limited && call_.copied_bytes() == static_cast<int64_t>(prepared_->copies.size())) {
    std::string id = method_.take_id != nullptr ? "" : call_.request_id();
    core_->recent_calls.Keep(prepared_, *std::move(stripped_), std::move(id), call_.payloads());
  }
  stripped_.reset();
  return absl::OkStatus();
}

}  // namespace posenc::server
