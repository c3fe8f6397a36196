#include "server/grpc/load_reports.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include "server/calls/messages.h"
#include "server/calls/status_map.h"
#include "server/core/fair_limit.h"
#include "xds/service/orca/v3/orca.pb.h"

namespace posenc::server {
namespace {

constexpr size_t kMostRequestBytes = 4096;
// A client that asks for shorter intervals, or none, gets this one; the longest is a day.
constexpr std::chrono::milliseconds kShortest{1'000}, kLongest{86'400'000};

struct Parts {
  LoadMeter* meter;
  Timers* timers;
  std::chrono::seconds send_timeout;
  std::shared_ptr<FairLimit> places;
};

class LoadReports final : public Reactor {
 public:
  LoadReports(std::shared_ptr<const Parts> parts, Rpc* rpc, grpc::ByteBuffer* request)
      : parts_(std::move(parts)), rpc_(rpc), request_(request) {}

  void Start() override {
    xds::service::orca::v3::OrcaLoadReportRequest request;
    if (!ParseMessage(request_, kMostRequestBytes, &request)) {
      return Refuse({grpc::INVALID_ARGUMENT,
                     "not an OrcaLoadReportRequest of at most " + std::to_string(kMostRequestBytes) + " bytes"});
    }
    if (!parts_->places->Take(CallerName(*rpc_), 1, &place_)) {
      return Refuse(
          {grpc::UNAVAILABLE, "too many streams: all callers share " + std::to_string(parts_->places->capacity())});
    }
    const int64_t most = kLongest.count() / 1000;
    const auto& asked = request.report_interval();
    interval_ = std::clamp(
        std::chrono::milliseconds(std::clamp<int64_t>(asked.seconds(), 0, most) * 1000 + asked.nanos() / 1'000'000),
        kShortest, kLongest);
    const std::lock_guard lock(mutex_);
    GoOn([this] { Write(); });
  }

  void OnWriteDone(bool ok) override {
    send_limit_.Revoke();
    const std::lock_guard lock(mutex_);
    is_writing_ = false;
    if (!ok || is_cancelled_) return End();
    GoOn([this] {
      next_ = parts_->timers->At(std::chrono::steady_clock::now() + interval_, [this] {
        const std::lock_guard held(mutex_);
        if (is_cancelled_) return;
        const absl::Status allowed = rpc_->AdmitMessage();  // the policy may have changed
        if (!allowed.ok()) return End(ToGrpc(allowed, false));
        GoOn([this] { Write(); });
      });
    });
  }

  void OnCancel() override {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    if (!is_writing_) End();
  }

 private:
  void Refuse(const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
    send_limit_ = parts_->timers->After(parts_->send_timeout, [this] { rpc_->TryCancel(); });
    rpc_->Finish(status);
  }
  // Ends the stream if the step lacks memory. Requires mutex_, as all below.
  template <class Step>
  void GoOn(const Step& step) {
    try {
      step();
    } catch (const std::bad_alloc&) {
      is_writing_ = false;
      End();
    }
  }
  // Completions come on other threads.
  void Write() {
    is_writing_ = true;
    send_limit_ = parts_->timers->After(parts_->send_timeout, [this] { rpc_->TryCancel(); });
    rpc_->Write(SerializeMessage(parts_->meter->Report()));
  }
  void End(const grpc::Status& status = {grpc::CANCELLED, "the stream is over"}) {
    if (std::exchange(has_ended_, true)) return;
    place_.Return();
    rpc_->Finish(status);
  }

  const std::shared_ptr<const Parts> parts_;
  Rpc* const rpc_;
  grpc::ByteBuffer* const request_;
  Charge place_;
  std::chrono::milliseconds interval_{};
  std::mutex mutex_;  // guards the members below
  bool is_writing_ = false, is_cancelled_ = false, has_ended_ = false;
  Timers::Timer next_, send_limit_;  // revoked first
};

}  // namespace

void AddLoadReportsTo(Methods* methods, LoadMeter* meter, size_t most, Timers* timers,
                      std::chrono::seconds send_timeout) {
  const auto parts =
      std::make_shared<const Parts>(Parts{meter, timers, send_timeout, FairLimit::Create(static_cast<int64_t>(most))});
  Method& method = (*methods)["/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics"];
  method.right = Right::kInfo;
  method.make = [parts](Rpc* rpc, grpc::ByteBuffer* request) {
    return std::make_unique<LoadReports>(parts, rpc, request);
  };
}

}  // namespace posenc::server
