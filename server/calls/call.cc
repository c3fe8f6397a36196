#include "server/calls/call.h"

#include <algorithm>
#include <exception>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/service/hints.h"
#include "posenc/wire/parse.h"
#include "server/access/policy.h"
#include "server/calls/answer_buffer.h"
#include "server/calls/messages.h"
#include "server/calls/status_map.h"
#include "server/core/log.h"

namespace posenc::server {
namespace {

using google::protobuf::Message;

constexpr char kPushback[] = "grpc-retry-pushback-ms";
constexpr char kServerTiming[] = "server-timing";
constexpr size_t kMaxRequestId = 128;

// Moves the slices out of the RPC's buffer. That buffer lives until the RPC ends, which a client that does not read its
// answer can delay.
grpc::ByteBuffer Take(grpc::ByteBuffer* request) {
  grpc::ByteBuffer taken;
  if (request != nullptr) taken.Swap(request);
  return taken;
}

double Milliseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// Milliseconds with three decimals. A format string takes five times as long, which shows in a decode step.
std::string WithDecimals(std::chrono::steady_clock::duration duration) {
  const int64_t microseconds = std::chrono::round<std::chrono::microseconds>(duration).count();
  return absl::StrCat(microseconds / 1000, ".", absl::Dec(microseconds % 1000, absl::kZeroPad3));
}

// CallHints.request_id; empty if absent. One that is longer than is returned is not kept: it would outlive the request.
std::string RequestId(const Message& request) {
  const v1::CallHints* hints = wire::HintsOf(request);
  return hints == nullptr ? "" : hints->request_id().substr(0, kMaxRequestId + 1);
}

}  // namespace

LoadMeter::Counts Core::CountLoad() const {
  const Admission::Counters now = admission->counters();
  const auto share = [](int64_t count, int64_t limit) {
    return static_cast<double>(count) / static_cast<double>(limit);
  };
  return {.started = metrics.started(),
          .failed = metrics.faults(),
          .waiting_tasks = static_cast<int64_t>(pool.waiting()),
          .requests = share(now.in_flight_requests, config.max_in_flight_requests),
          .bytes = share(now.in_flight_bytes, config.max_in_flight_bytes)};
}

Call::Call(Core* core, const wire::RpcDescription& method, Rpc* rpc, grpc::ByteBuffer* request, Kind kind)
    : core_(core),
      method_(method.name),
      metrics_(core->metrics.Of(method.path)),
      rpc_(rpc),
      caller_(CallerOf(*rpc)),
      in_progress_(request == nullptr ? nullptr : BeginRequest(rpc)),
      request_(Take(request)),
      valid_(request_.Valid()),
      is_compressed_(IsCompressed(&request_)),
      bytes_in_(valid_ ? request_.Length() : 0),
      request_memory_(static_cast<int64_t>(bytes_in_ + transport::SliceListBytes(&request_))),
      memory_([this](int64_t bytes) {
        memory_asked_ = held() + bytes;
        try {
          memory_verdict_ = core_->admission->AdmitBytes(bytes, held(), &memory_charge_, caller_);
        } catch (const std::bad_alloc&) {
          memory_verdict_ = Admission::Verdict::kOverloaded;
        }
        return memory_verdict_ == Admission::Verdict::kAdmitted;
      }),
      kind_(kind),
      entered_(Clock::now()),
      waits_since_(entered_) {
  core->admission->CountStart();
}

absl::Status Call::Admit() {
  // The client half-closed without a message, or the memory quota killed the call.
  if (!valid_) return InvalidArgument("MALFORMED", kWholeRequest, kAbsent, "must be one message");
  POSENC_RETURN_IF_ERROR(CheckSize(bytes_in_));
  return Refuse(core_->admission->AdmitRequest(request_memory_, &request_charge_, &request_bytes_charge_, caller_),
                request_memory_);
}

absl::Status Call::AdmitStream() {
  in_progress_ = BeginRequest(rpc_);
  return Refuse(core_->admission->AdmitRequest(0, &request_charge_, &request_bytes_charge_, caller_), 0);
}

absl::Status Call::CheckSize(size_t bytes) const {
  const int64_t limit = core_->config.limits.max_request_bytes;
  if (static_cast<int64_t>(bytes) <= limit) return absl::OkStatus();
  return TooLarge(kWholeRequest, absl::StrCat(bytes, " bytes"),
                  absl::StrCat("must be at most ", limit, " bytes (max_request_bytes)"));
}

absl::Status Call::Refuse(Admission::Verdict verdict, int64_t bytes) {
  const Config& config = core_->config;
  switch (verdict) {
    case Admission::Verdict::kAdmitted: admitted_ = true; return absl::OkStatus();
    case Admission::Verdict::kTooLarge:
      return TooLarge(kWholeRequest, absl::StrCat(bytes, " bytes with its answer and working memory"),
                      absl::StrCat("must be at most ", std::min(config.max_in_flight_bytes, caller_.max_bytes),
                                   " bytes (--max-in-flight-bytes, or the policy's max_in_flight_bytes)"));
    case Admission::Verdict::kOverloaded:
      refused_ = true;
      return Unavailable("OVERLOADED", absl::StrCat("too many requests or bytes in flight: all callers share ",
                                                    config.max_in_flight_requests, " (--max-in-flight-requests) and ",
                                                    config.max_in_flight_bytes, " (--max-in-flight-bytes)"));
    case Admission::Verdict::kOverQuota:
      refused_ = true;
      return Unavailable(
          "QUOTA",
          absl::StrCat("more requests or bytes in flight than the policy allows to ", rpc_->identity()->name, ": ",
                       std::min(config.max_in_flight_requests, caller_.max_requests), " (max_in_flight_requests) and ",
                       std::min(config.max_in_flight_bytes, caller_.max_bytes), " (max_in_flight_bytes)"));
    case Admission::Verdict::kDraining: refused_ = true; return Unavailable("DRAINING", "the server is shutting down");
  }
  __builtin_unreachable();
}

TaskOwner Call::owner() const { return {caller_.name, rpc_->connection_number()}; }

void Call::Submit(std::function<void()> task, Lane lane) {
  const TaskOwner caller = owner();
  core_->pool.Submit(std::move(task), lane, &caller);
}

void Call::BeginWork() {
  Enter(Phase::kPrepare);
  work_began_ = Clock::now();
  of_others_ = WorkPool::TimeBetweenSlabs();
  if (waits_since_ == Clock::time_point()) return;
  queued_ += work_began_ - waits_since_;
  waits_since_ = Clock::time_point();
}

void Call::WaitForWork() {
  if (work_began_ == Clock::time_point()) return;  // still queued since its entry
  EndWork();
  Enter(Phase::kQueue);
  waits_since_ = Clock::now();
}

void Call::EndWork() {
  if (work_began_ == Clock::time_point()) return;
  const Clock::duration of_others = WorkPool::TimeBetweenSlabs() - of_others_;
  const Clock::duration worked = Clock::now() - work_began_ - of_others;
  queued_ += of_others;
  computed_ += worked;
  work_began_ = Clock::time_point();
}

void Call::BeginSend() {
  send_timer_ = core_->timers.After(std::chrono::seconds(core_->config.send_timeout_s), [this] {
    LogCall(LogLevel::info, "cancelled: the answer was not taken in time", {{"method", method_}});
    given_up_ = true;
    rpc_->TryCancel();
  });
}

Call::Clock::time_point Call::LatestEnd() const {
  const Config& config = core_->config;
  return entered_ + std::chrono::seconds(kind_ == Kind::kUnary ? config.max_call_s : config.max_stream_s);
}

absl::Status Call::StillWanted() const {
  if (rpc_->deadline() <= std::chrono::system_clock::now()) return absl::DeadlineExceededError("deadline exceeded");
  const Clock::time_point now = Clock::now();
  if (LatestEnd() <= now) {
    return absl::DeadlineExceededError(kind_ == Kind::kUnary ? "took longer than --max-call-seconds"
                                                             : "took longer than --max-stream-seconds");
  }
  if (admitted_ && core_->computing_ends.load(std::memory_order_relaxed) <= now) {
    return Unavailable("DRAINING", "the server is shutting down, and does not wait for this call any longer");
  }
  if (given_up_ || rpc_->cancelled()) return absl::CancelledError("the call was cancelled");
  if (memory_.refused()) return Unavailable("OVERLOADED", "too many bytes in flight");
  return regions_ ? regions_->CheckUndamaged() : absl::OkStatus();
}

absl::Status Call::CountStep() const {
  const int64_t server_limit = core_->config.max_call_cost;
  const int64_t limit =
      rpc_->identity() == nullptr ? server_limit : std::min(server_limit, rpc_->identity()->max_call_cost);
  const bool waits = ActivityScope::Current() == Activity::kWaiting;
  if (waits || cost_.fetch_add(1, std::memory_order_relaxed) < limit) {
    return moves_on_at_ <= Clock::now() && MovesOn() ? WouldBlock() : StillWanted();
  }
  return TooLarge(kWholeRequest, absl::StrCat("more than ", limit, " slow steps"),
                  absl::StrCat("must take at most ", limit, " slow steps (",
                               limit == server_limit ? "--max-call-cost" : "the policy's max_call_cost", ")"));
}

void Call::LimitStep(std::optional<std::chrono::milliseconds> time) {
  moves_on_at_ = time ? Clock::now() + *time : Clock::time_point::max();
  step_time_ = time.value_or(std::chrono::milliseconds(0));
  late_since_.reset();
  if (time) moves_on_ = false;
}

bool Call::MovesOn() const {
  if (moves_on_) return true;
  const std::chrono::nanoseconds now = ThreadTime();
  if (!late_since_) late_since_ = now;
  moves_on_ = now - *late_since_ >= step_time_;
  return moves_on_;
}

absl::Status Call::EndStep(const absl::Status& status) {
  if (memory_.refused()) return Refuse(memory_verdict_, memory_asked_);
  // A stream keeps what its first message needs. Later steps keep nothing: what seems left, gRPC's threads release.
  memory_charge_.Return(memory_.Shrink(kept_));
  if (kind_ == Kind::kStream) kept_ = std::min(kept_, memory_.held());
  if (IsWouldBlock(status)) answer_bytes_ = 0;  // the answer that was begun is gone, and its charge with it
  return status;
}

absl::Status Call::Decompress(grpc::ByteBuffer* message) {
  if (!IsCompressed(message)) return absl::OkStatus();
  const LargeBlocksMayBeRefused charged;
  return server::Decompress(message, static_cast<size_t>(core_->config.limits.max_request_bytes), [this] {
    core_->pool.GiveWay();
    return CountStep();
  });
}

absl::StatusOr<std::string> Call::Strip(const wire::Stripper& stripper, size_t max_bytes) {
  if (is_compressed_) {
    POSENC_RETURN_IF_ERROR(Decompress(&request_));
    is_compressed_ = false;
    bytes_in_ = request_.Length();
  }
  auto slices = transport::SlicesOf(&request_);
  if (!slices) return InvalidArgument("MALFORMED", kWholeRequest, "bytes that cannot be read", "must be one message");
  transport::SliceStream stream(*slices);
  POSENC_ASSIGN_OR_RETURN(wire::Stripped stripped, stripper.Strip(&stream, max_bytes));
  payloads_.emplace(*std::move(slices), std::move(stripped.ranges));
  return std::move(stripped.message);
}

absl::Status Call::Parse(const std::string& stripped, Message* request) {
  bool has_regions = false;
  POSENC_RETURN_IF_ERROR(wire::ParseStripped(stripped, request, core_->memory != nullptr ? &has_regions : nullptr));
  POSENC_RETURN_IF_ERROR(wire::CheckHints(*request, core_->devices));
  return Accept(*request, RequestId(*request), has_regions);
}

absl::Status Call::Accept(const Message& request, std::string request_id, bool has_regions) {
  request_id_ = std::move(request_id);
  return has_regions ? FindRegions(request) : absl::OkStatus();
}

absl::Status Call::FindRegions(const Message& request) {
  if (const Identity* identity = rpc_->identity(); identity != nullptr && !identity->Allows(Right::kSharedMemory)) {
    return NotAllowed(*identity, Right::kSharedMemory, kWholeRequest, "a request with regions of shared memory");
  }
  POSENC_ASSIGN_OR_RETURN(regions_, wire::RequestRegions::Find(request, *core_->memory));
  payloads_->SetRegions(&*regions_);
  // Copied bytes take memory like bytes of the message, so the same limit applies. They are charged once allocated.
  const int64_t copied = regions_->copied_bytes(), limit = core_->config.limits.max_request_bytes;
  const auto held = static_cast<int64_t>(bytes_in_);
  if (copied > limit - held) {
    return TooLarge(kWholeRequest, absl::StrCat(held, " bytes and ", copied, " in regions"),
                    absl::StrCat("must be at most ", limit, " bytes beside the operands (max_request_bytes)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Charge>> Call::ChargeAnswer(size_t bytes) {
  auto charge = std::make_shared<Charge>();
  const auto size = static_cast<int64_t>(bytes);
  answer_bytes_ = 0;
  POSENC_RETURN_IF_ERROR(Refuse(core_->admission->AdmitBytes(size, held(), charge.get(), caller_), size + held()));
  answer_bytes_ = bytes;
  return charge;
}

absl::Status Call::Compute(const wire::Job::Run& run, const std::vector<wire::Output>& outputs,
                           const wire::Payloads& payloads, const wire::Answer& layout, std::shared_ptr<Charge> charge,
                           grpc::ByteBuffer* answer) {
  const size_t first_data = outputs.empty() ? 0 : layout.data_offset(0);
  AnswerBuffer buffer(layout.buffer_size(), first_data, core_->buffer_pool, std::move(charge));
  layout.WriteHeaders(buffer.data());
  if (run) {
    std::vector<std::byte*> places;
    for (size_t n = 0; n < outputs.size(); ++n) {
      const v1::Region* region = outputs[n].region();
      places.push_back(region != nullptr ? payloads.At(*region) : buffer.data() + layout.data_offset(n));
    }
    started_ = true;
    POSENC_RETURN_IF_ERROR(run(payloads, places, core_->pool, [this] { return CountStep(); }));
    if (regions_) POSENC_RETURN_IF_ERROR(regions_->CheckUndamaged());
  }
  bytes_out_ += layout.size();
  *answer = std::move(buffer).Release(layout.size());
  return absl::OkStatus();
}

void Call::CountTensors(const std::vector<wire::Output>& outputs, const std::string& device) {
  for (const wire::Output& output : outputs) CountTensor(output.tensor->dtype(), device, output.bytes);
}

void Call::CountTensor(v1::DataType dtype, const std::string& device, size_t bytes) {
  dtype_ = dtype;
  device_ = device.empty() ? "cpu" : device;
  metrics_->CountTensor(dtype, device_, bytes);
}

void Call::ReleaseRequest() {
  payloads_.reset();
  regions_.reset();
  request_.Clear();
  request_bytes_charge_.Return();
  request_memory_ = 0;
}

absl::Status Call::Conclude(const absl::Status& result) {
  EndWork();
  // The error may result from the zeros that replaced lost shared memory: report the loss instead.
  const bool lost = !result.ok() && regions_ && !regions_->CheckUndamaged().ok();
  const absl::Status status = lost ? regions_->CheckUndamaged() : result;
  ReleaseRequest();
  memory_.Clear();
  memory_charge_.Return();
  const std::string reason = status.ok() ? "" : DetailsOf(status).reason;
  if (reason == "DRAINING" || reason == "QUOTA") refused_ = true;
  if (refused_) {
    core_->admission->CountRefusal();
  } else if (!status.ok()) {
    core_->admission->CountFailure();
  }
  metrics_->Count(queued_, computed_, bytes_in_, bytes_out_);
  if (!status.ok()) metrics_->CountError(reason);
  if (on_end_) on_end_(status, queued_, computed_);
  traceparent_ = rpc_->header(kTraceparent);
  if (!ParseTraceparent(traceparent_)) traceparent_.clear();
  LogEnd(status);
  return status;
}

grpc::Status Call::End(const absl::Status& result) {
  const absl::Status status = Conclude(result);
  rpc_->AddTrailer(kServerTiming,
                   absl::StrCat("queue;dur=", WithDecimals(queued_), ", compute;dur=", WithDecimals(computed_)));
  if (const std::string format = rpc_->header(kLoadFormat); !format.empty()) {
    const bool may_know = rpc_->identity() == nullptr || rpc_->identity()->Allows(Right::kInfo);
    const auto trailer = may_know ? MakeLoadTrailer(format, &core_->load) : std::nullopt;
    if (trailer) rpc_->AddTrailer(trailer->name, trailer->value);
  }
  // A push-back would replace the client's backoff, which outlasts a restart or an update.
  if (refused_ && DetailsOf(status).reason != "DRAINING") {
    rpc_->AddTrailer(kPushback, absl::StrCat(core_->config.retry_pushback_ms));
  }
  AddTraceTrailers();
  if (CallSpan* const span = rpc_->span(); span != nullptr) DescribeIn(span);
  BeginSend();
  return ToGrpc(status, started_);
}

void Call::AddTraceTrailers() {
  if (!traceparent_.empty()) rpc_->AddTrailer(kTraceparent, traceparent_);
  // A header can hold printable ASCII only.
  const bool printable =
      std::all_of(request_id_.begin(), request_id_.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!request_id_.empty() && request_id_.size() <= kMaxRequestId && printable) {
    rpc_->AddTrailer("x-request-id", request_id_);
  }
}

void Call::DescribeIn(CallSpan* span) const {
  span->Set("posenc.queue.microseconds", std::chrono::round<std::chrono::microseconds>(queued_).count());
  span->Set("posenc.compute.microseconds", std::chrono::round<std::chrono::microseconds>(computed_).count());
  span->Set("posenc.request.size", bytes_in_);
  span->Set("posenc.response.size", bytes_out_);
  if (!model_.empty()) span->Set("posenc.model", model_);
  if (dtype_ != v1::DATA_TYPE_UNSPECIFIED) {
    constexpr std::string_view kPrefix = "DATA_TYPE_";
    span->Set("posenc.dtype", std::string_view(v1::DataType_Name(dtype_)).substr(kPrefix.size()));
    span->Set("posenc.device", device_);
  }
  if (rpc_->identity() != nullptr) span->Set("posenc.identity", rpc_->identity()->name);
  if (!request_id_.empty()) span->Set("posenc.request_id", request_id_);
  if (const int64_t cost = cost_; cost > 0) span->Set("posenc.cost", cost);
}

void Call::LogEnd(const absl::Status& status) {
  const LogLevel level = status.ok() ? LogLevel::debug : LogLevel::info;
  if (!Logs(level)) return;
  LogFields fields = {{"method", method_}, {"status", absl::StatusCodeToString(status.code())}};
  if (!status.ok()) {
    fields.emplace_back("reason", DetailsOf(status).reason);
    fields.emplace_back("error", Quote({status.message().data(), status.message().size()}, 256));
  }
  const std::string peer = rpc_->connection();
  // gRPC does not know the peer of a call that was cancelled before it arrived.
  fields.emplace_back("peer", !peer.empty() ? peer : rpc_->is_unix() ? "unix" : "unknown");
  if (rpc_->identity() != nullptr) fields.emplace_back("identity", rpc_->identity()->name);
  if (!request_id_.empty()) fields.emplace_back("request_id", Quote(request_id_, kMaxRequestId));
  if (const CallSpan* span = rpc_->span(); span != nullptr) {
    fields.emplace_back("trace_id", span->trace_id());
  } else if (const auto parent = ParseTraceparent(traceparent_)) {
    fields.emplace_back("trace_id", ToHex(parent->trace_id.data(), parent->trace_id.size()));
  }
  fields.emplace_back("bytes_in", bytes_in_);
  fields.emplace_back("bytes_out", bytes_out_);
  fields.emplace_back("queue_ms", Milliseconds(queued_));
  fields.emplace_back("compute_ms", Milliseconds(computed_));
  fields.emplace_back("cost", cost_.load());
  LogCall(level, "call", fields);
}

std::string DeviceOf(const Message& response) {
  const auto* info = response.GetDescriptor()->FindFieldByName("info");
  if (info == nullptr) return "";
  return static_cast<const v1::AnswerInfo&>(response.GetReflection()->GetMessage(response, info)).device();
}

absl::Status StatusOfCurrentException() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Unavailable("OVERLOADED", "out of memory");
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  } catch (...) {
    return absl::InternalError("unknown exception");
  }
}

}  // namespace posenc::server
