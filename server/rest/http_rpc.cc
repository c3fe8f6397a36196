#include "server/rest/http_rpc.h"

#include <atomic>
#include <chrono>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "server/calls/rpc.h"
#include "server/calls/rpc_span.h"
#include "server/calls/status_map.h"
#include "server/metrics/call_metrics.h"
#include "server/rest/message_json.h"

namespace posenc::server {
namespace {

using std::chrono::steady_clock;

constexpr size_t kWrittenAtOnce = size_t{64} << 10;
constexpr char kPushback[] = "grpc-retry-pushback-ms";

int HttpStatusOf(grpc::StatusCode code) {
  switch (code) {
    case grpc::OK: return 200;
    case grpc::INVALID_ARGUMENT:
    case grpc::OUT_OF_RANGE:
    case grpc::FAILED_PRECONDITION: return 400;
    case grpc::UNAUTHENTICATED: return 401;
    case grpc::PERMISSION_DENIED: return 403;
    case grpc::NOT_FOUND: return 404;
    case grpc::ALREADY_EXISTS:
    case grpc::ABORTED: return 409;
    case grpc::RESOURCE_EXHAUSTED: return 413;  // here always a request or its answer that is too large
    case grpc::CANCELLED: return 499;
    case grpc::UNIMPLEMENTED: return 501;
    case grpc::UNAVAILABLE: return 503;
    case grpc::DEADLINE_EXCEEDED: return 504;
    default: return 500;
  }
}

// Deletes itself once the answer is sent and Start() has returned.
class HttpRpc final : public Rpc {
 public:
  HttpRpc(Core* core, const Method& method, std::shared_ptr<HttpExchange> exchange, HttpCaller caller,
          const grpc::ByteBuffer& request, HttpAnswerWriter writer)
      : core_(core),
        method_(method),
        exchange_(std::move(exchange)),
        caller_(std::move(caller)),
        request_(request),
        writer_(std::move(writer)) {}

  void Serve() {
    method_.metrics->Start();
    try {
      reactor_ = method_.make(this, &request_);
    } catch (const std::bad_alloc&) {
      Finish({grpc::UNAVAILABLE, "out of memory"});
      return Release();
    }
    reactor_->Start();
    Release();
  }

  std::chrono::system_clock::time_point deadline() const override {
    return std::chrono::system_clock::time_point::max();
  }
  std::string connection() const override { return caller_.connection; }
  uint64_t connection_number() const override { return exchange_->request().peer->number; }
  bool is_local() const override { return caller_.is_local; }
  bool is_unix() const override { return exchange_->request().peer->is_unix(); }
  const Identity* identity() const override { return caller_.identity.get(); }
  CallSpan* span() override { return caller_.span.get(); }
  absl::Status AdmitMessage() override { return absl::OkStatus(); }  // of streams
  std::string header(const std::string& name) const override { return std::string(exchange_->request().field(name)); }
  // The reactors of unary calls ask, and need no OnCancel().
  bool cancelled() const override { return exchange_->is_gone(); }
  void AddTrailer(const std::string& name, const std::string& value) override {
    const bool is_binary = name.ends_with("-bin");
    if (name != kPushback) return void(trailers_.emplace_back(name, is_binary ? absl::Base64Escape(value) : value));
    // Seconds, rounded up.
    const int64_t milliseconds = std::strtoll(value.c_str(), nullptr, 10);
    trailers_.emplace_back("Retry-After", absl::StrCat((milliseconds + 999) / 1000));
  }
  void TryCancel() override { exchange_->Close(); }
  // A connection is busy from its request's header on until the answer is sent.
  void BeginRequest() override {}
  void EndRequest() override {}
  // A unary call reads and writes nothing besides.
  void Read(grpc::ByteBuffer*) override {}
  void Write(const grpc::ByteBuffer&) override {}
  void Finish(const grpc::Status& status) override { Send(HttpErrorOf(status), status); }
  void WriteAndFinish(const grpc::ByteBuffer& message) override {
    if (!writer_.takes_long || message.Length() <= kWrittenAtOnce || core_->pool.RunsTask())
      return WriteAnswer(message);
    Enter(Phase::kQueue);
    const TaskOwner owner{CallerName(*this), connection_number()};
    const absl::Status submitted = WithoutExceptions([&] {
      core_->pool.Submit([this, message] { WriteAnswer(message); }, Lane::kBulk, &owner);
      return absl::OkStatus();
    });
    if (!submitted.ok()) Finish(ToGrpc(submitted, true));
  }

 private:
  void Enter(Phase phase) {
    if (caller_.span != nullptr && caller_.span->has_phases()) caller_.span->Enter(phase);
  }
  void WriteAnswer(const grpc::ByteBuffer& message) {
    Enter(Phase::kEncode);
    HttpAnswer answer;
    const absl::Status written = WithoutExceptions([&]() -> absl::Status {
      POSENC_ASSIGN_OR_RETURN(answer, writer_.write(message));
      return Charge(answer.body.size());
    });
    if (written.ok()) return Send(std::move(answer), grpc::Status::OK);
    Finish(ToGrpc(written, true));
  }
  absl::Status Charge(size_t bytes) {
    if (bytes <= kWrittenAtOnce) return absl::OkStatus();
    const auto verdict =
        core_->admission->AdmitBytes(static_cast<int64_t>(bytes), 0, &text_charge_, server::CallerOf(*this));
    if (verdict == Admission::Verdict::kAdmitted) return absl::OkStatus();
    return Unavailable("OVERLOADED", "too many bytes in flight for the answer as JSON: ask for binary outputs");
  }
  void Send(HttpAnswer answer, const grpc::Status& status) {
    method_.metrics->End(status.error_code(), steady_clock::now() - began_);
    Enter(Phase::kSend);
    if (!exchange_->is_gone()) SetHttpStatus(answer.status, status, caller_.span.get());
    for (auto& trailer : trailers_) answer.fields.push_back(std::move(trailer));
    exchange_->Answer(std::move(answer), [this] { Release(); });
  }
  void Release() {
    if (--expected_ == 0) delete this;
  }

  Core* const core_;
  const Method& method_;
  const std::shared_ptr<HttpExchange> exchange_;
  const HttpCaller caller_;
  grpc::ByteBuffer request_;
  const HttpAnswerWriter writer_;
  server::Charge text_charge_;
  const steady_clock::time_point began_ = steady_clock::now();
  std::vector<std::pair<std::string, std::string>> trailers_;
  std::atomic<int> expected_{2};      // until it is deleted: Serve() has returned, and the answer is sent
  std::unique_ptr<Reactor> reactor_;  // destroyed first
};

}  // namespace

HttpAnswer HttpErrorOf(const grpc::Status& status) {
  nlohmann::ordered_json body = {{"error", status.error_message()}};
  if (const auto info = ErrorInfoOf(status)) {
    body["reason"] = info->reason();
    for (const char* key : {"field", "value", "limit", "line", "column"}) {
      const auto found = info->metadata().find(key);
      if (found != info->metadata().end()) body[key] = found->second;
    }
  }
  HttpAnswer answer{.status = HttpStatusOf(status.error_code()), .body = JsonText(body) + "\n"};
  if (answer.status == 401) answer.fields.emplace_back("WWW-Authenticate", "Bearer");
  return answer;
}

void SetHttpStatus(int http_status, const grpc::Status& status, CallSpan* span) {
  if (span == nullptr) return;
  span->Set("http.response.status_code", http_status);
  SetErrorDetails(status, span);
  if (http_status < 500) return;
  span->Set("error.type", std::to_string(http_status));
  span->SetError(status.error_message());
}

void ServeHttpCall(Core* core, const Method& method, std::shared_ptr<HttpExchange> exchange, HttpCaller caller,
                   const grpc::ByteBuffer& request, HttpAnswerWriter writer) {
  (new HttpRpc(core, method, std::move(exchange), std::move(caller), request, std::move(writer)))->Serve();
}

}  // namespace posenc::server
