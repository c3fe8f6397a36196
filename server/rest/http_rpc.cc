#include "server/rest/http_rpc.h"

#include <atomic>
#include <chrono>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "posenc/v1/error.pb.h"
#include "server/calls/rpc.h"
#include "server/calls/status_map.h"
#include "server/metrics/call_metrics.h"
#include "server/rest/message_json.h"

namespace posenc::server {
namespace {

using std::chrono::steady_clock;

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
  HttpRpc(const Method& method, std::shared_ptr<HttpExchange> exchange, HttpCaller caller, grpc::ByteBuffer request,
          WriteHttpAnswer write)
      : method_(method),
        exchange_(std::move(exchange)),
        caller_(std::move(caller)),
        request_(std::move(request)),
        write_(std::move(write)) {}

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
  absl::Status AdmitMessage() override { return caller_.admit_again ? caller_.admit_again() : absl::OkStatus(); }
  std::string header(const std::string& name) const override { return std::string(exchange_->request().field(name)); }
  // The reactors of unary calls ask, and need no OnCancel().
  bool cancelled() const override { return exchange_->is_gone(); }
  void AddTrailer(const std::string& name, const std::string& value) override {
    if (name != kPushback) return void(trailers_.emplace_back(name, value));
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
  void Finish(const grpc::Status& status) override { Send(HttpErrorOf(status), status.error_code()); }
  void WriteAndFinish(const grpc::ByteBuffer& message) override {
    absl::StatusOr<HttpAnswer> answer = absl::InternalError("");
    try {
      answer = write_(message);
    } catch (const std::bad_alloc&) {
      answer = Unavailable("OVERLOADED", "out of memory");
    }
    if (answer.ok()) return Send(*std::move(answer), grpc::OK);
    const grpc::Status failed = ToGrpc(answer.status(), true);
    Send(HttpErrorOf(failed), failed.error_code());
  }

 private:
  void Send(HttpAnswer answer, grpc::StatusCode code) {
    method_.metrics->End(code, steady_clock::now() - began_);
    for (auto& trailer : trailers_) answer.fields.push_back(std::move(trailer));
    exchange_->Answer(std::move(answer), [this] { Release(); });
  }
  void Release() {
    if (--expected_ == 0) delete this;
  }

  const Method& method_;
  const std::shared_ptr<HttpExchange> exchange_;
  const HttpCaller caller_;
  grpc::ByteBuffer request_;
  const WriteHttpAnswer write_;
  const steady_clock::time_point began_ = steady_clock::now();
  std::vector<std::pair<std::string, std::string>> trailers_;
  std::atomic<int> expected_{2};      // until it is deleted: Serve() has returned, and the answer is sent
  std::unique_ptr<Reactor> reactor_;  // destroyed first
};

}  // namespace

HttpAnswer HttpErrorOf(const grpc::Status& status) {
  nlohmann::ordered_json body = {{"error", status.error_message()}};
  v1::RichStatus rich;
  v1::ErrorInfo info;
  if (rich.ParseFromString(status.error_details()) && rich.details_size() > 0 &&
      info.ParseFromString(rich.details(0).value())) {
    body["reason"] = info.reason();
    for (const char* key : {"field", "value", "limit", "line", "column"}) {
      const auto found = info.metadata().find(key);
      if (found != info.metadata().end()) body[key] = found->second;
    }
  }
  HttpAnswer answer{.status = HttpStatusOf(status.error_code()), .body = JsonText(body) + "\n"};
  if (answer.status == 401) answer.fields.emplace_back("WWW-Authenticate", "Bearer");
  return answer;
}

void ServeHttpCall(const Method& method, std::shared_ptr<HttpExchange> exchange, HttpCaller caller,
                   grpc::ByteBuffer request, WriteHttpAnswer write) {
  (new HttpRpc(method, std::move(exchange), std::move(caller), std::move(request), std::move(write)))->Serve();
}

}  // namespace posenc::server
