#include "server/grpc/health.h"

#include <memory>
#include <optional>
#include <utility>

#include "grpc/health/v1/health.pb.h"
#include "server/calls/messages.h"

namespace posenc::server {
namespace {

using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;

constexpr size_t kMaxName = 256;  // bytes of a service's name, which a Watch stores
constexpr size_t kMaxRequest = kMaxName + 256;

// Returns the requested service's name. Sets *status if the request is invalid.
std::string ServiceIn(grpc::ByteBuffer* request, grpc::Status* status) {
  HealthCheckRequest message;
  if (!ParseMessage(request, kMaxRequest, &message)) {
    *status = {grpc::INVALID_ARGUMENT, "not a HealthCheckRequest of at most " + std::to_string(kMaxRequest) + " bytes"};
  } else if (message.service().size() > kMaxName) {
    *status = {grpc::INVALID_ARGUMENT, "service: a name has at most " + std::to_string(kMaxName) + " bytes"};
  }
  return message.service();
}

grpc::ByteBuffer Response(int status) {
  HealthCheckResponse message;
  message.set_status(static_cast<HealthCheckResponse::ServingStatus>(status));
  return SerializeMessage(message);
}

}  // namespace

class Health::Check final : public Reactor {
 public:
  Check(Health* health, Rpc* rpc, grpc::ByteBuffer* request) : health_(health), rpc_(rpc), request_(request) {}

  void Start() override {
    grpc::Status status;
    const std::string service = ServiceIn(request_, &status);
    if (!status.ok()) return rpc_->Finish(status);
    std::unique_lock lock(health_->mutex_);
    const Status found = health_->StatusOf(service);
    lock.unlock();
    if (found == Status::kUnknownService) return rpc_->Finish({grpc::NOT_FOUND, "no such service"});
    send_limit_ = health_->timers_->After(health_->send_timeout_, [this] { rpc_->TryCancel(); });
    rpc_->WriteAndFinish(Response(static_cast<int>(found)));
  }

 private:
  Health* const health_;
  Rpc* const rpc_;
  grpc::ByteBuffer* const request_;
  Timers::Timer send_limit_;
};

// Its state is guarded by Health's mutex. Calling Write() under it is safe: completions arrive on other threads.
class Health::Watch final : public Reactor {
 public:
  Watch(Health* health, Rpc* rpc, grpc::ByteBuffer* request) : health_(health), rpc_(rpc), request_(request) {}

  void Start() override {
    grpc::Status status;
    service_ = ServiceIn(request_, &status);
    if (!status.ok()) return rpc_->Finish(status);
    if (!health_->watch_limit_->Take(CallerName(*rpc_), 1, &place_)) {
      refusal_limit_ = health_->timers_->After(health_->send_timeout_, [this] { rpc_->TryCancel(); });
      return rpc_->Finish({grpc::UNAVAILABLE,
                           "too many watches: all callers share " + std::to_string(health_->watch_limit_->capacity())});
    }
    const std::lock_guard lock(health_->mutex_);
    health_->watches_.insert(this);
    Tell();
  }

  const std::string& service() const { return service_; }

  // Sends the status if it has changed. Requires Health's mutex.
  void Tell() {
    const Status now = health_->StatusOf(service_);
    if (writing_ || told_ == now) return;
    told_ = now;
    writing_ = true;
    rpc_->Write(Response(static_cast<int>(now)));
  }

  void OnWriteDone(bool ok) override {
    const std::lock_guard lock(health_->mutex_);
    writing_ = false;
    if (cancelled_) return End();
    if (ok) Tell();
  }

  void OnCancel() override {
    const std::lock_guard lock(health_->mutex_);
    cancelled_ = true;
    if (!writing_) End();
  }

 private:
  void End() {
    if (health_->watches_.erase(this) == 0) return;
    place_.Return();
    rpc_->Finish({grpc::CANCELLED, "the watch is over"});
  }

  Health* const health_;
  Rpc* const rpc_;
  grpc::ByteBuffer* const request_;
  Charge place_;
  std::string service_;
  std::optional<Status> told_;
  bool writing_ = false, cancelled_ = false;
  Timers::Timer refusal_limit_;
};

Health::Status Health::StatusOf(const std::string& service) const {
  const auto found = services_.find(service);
  if (found == services_.end()) return Status::kUnknownService;
  return ended_ ? Status::kNotServing : found->second;
}

void Health::Set(const std::string& service, bool serving) {
  const std::lock_guard lock(mutex_);
  services_[service] = serving ? Status::kServing : Status::kNotServing;
  for (Watch* watch : watches_) {
    if (watch->service() == service) watch->Tell();
  }
}

void Health::EndServing() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  for (Watch* watch : watches_) watch->Tell();
}

void Health::AddTo(Methods* methods, size_t most_watches, Timers* timers, std::chrono::seconds send_timeout) {
  watch_limit_ = FairLimit::Create(static_cast<int64_t>(most_watches));
  timers_ = timers;
  send_timeout_ = send_timeout;
  Method& check = (*methods)["/grpc.health.v1.Health/Check"];
  check.admits = false;
  check.make = [this](Rpc* rpc, grpc::ByteBuffer* request) { return std::make_unique<Check>(this, rpc, request); };
  (*methods)["/grpc.health.v1.Health/Watch"].make = [this](Rpc* rpc, grpc::ByteBuffer* request) {
    return std::make_unique<Watch>(this, rpc, request);
  };
}

}  // namespace posenc::server
