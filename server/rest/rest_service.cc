#include "server/rest/rest_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "inference/service.pb.h"
#include "posenc/base/memory_account.h"
#include "posenc/base/status.h"
#include "server/access/proxy_headers.h"
#include "server/calls/rpc_span.h"
#include "server/calls/status_map.h"
#include "server/core/compression.h"
#include "server/rest/control_json.h"
#include "server/rest/http_rpc.h"
#include "server/rest/infer_answer_json.h"
#include "server/rest/infer_json.h"
#include "server/rest/path.h"

namespace posenc::server {
namespace {

using StatusOrBegun = std::variant<HttpAnswer, HttpContinuation>;

constexpr char kJsonLength[] = "Inference-Header-Content-Length";
// JSON that takes longer to parse is parsed by a thread of the pool.
constexpr size_t kParsedAtOnce = size_t{64} << 10;

HttpAnswer ErrorOf(const absl::Status& status) { return HttpErrorOf(ToGrpc(status, false)); }

// The bytes of a body that are JSON: all of it, unless the header says otherwise.
absl::StatusOr<size_t> JsonBytesOf(const HttpRequest& request, size_t body_bytes) {
  const std::string_view length = request.field(kJsonLength);
  if (length.empty()) return body_bytes;
  size_t bytes = 0;
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), bytes);
  if (error == std::errc() && end == length.data() + length.size() && bytes > 0 && bytes <= body_bytes) return bytes;
  return InvalidArgument("OUT_OF_RANGE", kJsonLength, length,
                         fmt::format("must be from 1 to {}, the bytes of the body", body_bytes));
}

bool IsCompressed(const HttpRequest& request) {
  const std::string_view encoding = request.field("content-encoding");
  const bool is_plain = encoding.empty() || absl::EqualsIgnoreCase(std::string(encoding), "identity");
  return !is_plain || request.fields.count("content-encoding") > 1;
}

// Answers a request whose body is compressed in a way that is not taken.
std::optional<HttpAnswer> RefuseEncoding(const HttpRequest& request, bool may_be_compressed) {
  if (!IsCompressed(request)) return std::nullopt;
  const std::string encoding = absl::AsciiStrToLower(std::string(request.field("content-encoding")));
  const bool is_known = encoding == "gzip" || encoding == "deflate";
  if (may_be_compressed && is_known && request.fields.count("content-encoding") == 1) return std::nullopt;
  HttpAnswer answer = HttpError(415, may_be_compressed ? "Content-Encoding: must be absent, gzip or deflate"
                                                       : "Content-Encoding: must be absent, except for infer");
  answer.fields.emplace_back("Accept-Encoding", may_be_compressed ? "gzip, deflate" : "identity");
  return answer;
}

HttpCaller HttpCallerOf(const HttpRequest& request) {
  const HttpPeer& peer = *request.peer;
  HttpCaller caller{.connection = request.caller};
  // A page that a browser of this host shows is not the host's.
  const bool is_of_browser = request.fields.count("origin") + request.fields.count("sec-fetch-site") > 0;
  const bool is_near = !is_of_browser && !peer.is_trusted_proxy && (peer.is_unix() || IsLoopback(PeerOf(peer.name)));
  caller.is_local = is_near && std::none_of(request.fields.begin(), request.fields.end(), [](const auto& field) {
                      std::string name(field.name_string());
                      std::transform(name.begin(), name.end(), name.begin(),
                                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
                      return IsHeaderOfProxy(name);
                    });
  return caller;
}

CallerCredentials CredentialsOf(const HttpRequest& request) {
  const HttpPeer& peer = *request.peer;
  std::string authorization(request.field("authorization"));
  if (peer.is_trusted_proxy) {
    return ProxiedCredentials(std::string(request.field(kProxiedCertificate)), std::move(authorization));
  }
  return {.names = peer.names,
          .authorization = std::move(authorization),
          .is_unix = peer.is_unix(),
          .is_private = peer.is_tls || peer.is_unix()};
}

class RestHandler {
 public:
  RestHandler(Core* core, const Methods& methods, Authorize authorize) : core_(core), authorize_(std::move(authorize)) {
    const auto add = [&](const std::string& name) {
      const std::string path = InferenceRpc(name).path;
      Method& method = methods_[name] = methods.at(path);
      method.metrics = core->metrics.Of(path);
    };
    for (const ControlRoute& route : ControlRoutes()) add(route.method);
    add(kInfer);
  }

  StatusOrBegun Begin(const HttpRequest& request) const {
    const Path path = Path::Of(request.target);
    const std::string& verb = request.verb == "HEAD" ? kGet : request.verb;
    std::string verbs;  // with which the path exists
    if (const auto named = path.Match(kInferPath)) {
      if (verb == "POST") {
        return BeginCall(request, kInfer, kInferPath,
                         [this, named = *named](auto exchange, auto caller) { Infer(exchange, caller, named); });
      }
      verbs = "POST";
    }
    for (const ControlRoute& route : ControlRoutes()) {
      const auto named = path.Match(route.pattern);
      if (!named) continue;
      if (verb == route.verb) {
        return BeginCall(request, route.method, route.pattern,
                         [this, &route, named = *named](auto exchange, auto caller) {
                           Control(std::move(exchange), std::move(caller), route, named);
                         });
      }
      verbs += (verbs.empty() ? "" : ", ") + std::string(route.verb);
    }
    if (verbs.empty()) return ErrorOf(NoSuchPath(request.target));
    HttpAnswer answer = HttpError(405, fmt::format("{} must be {}", Quote(request.verb), verbs));
    answer.fields.emplace_back("Allow", verbs);
    return answer;
  }

 private:
  static constexpr char kInfer[] = "ModelInfer";
  static constexpr char kInferPath[] = "/v2/models/{model}/infer";
  inline static const std::string kGet = "GET";
  using Serve = std::function<void(std::shared_ptr<HttpExchange>, HttpCaller)>;

  static absl::Status NoSuchPath(std::string_view target) {
    return Restore(absl::StatusCode::kNotFound,
                   fmt::format("path: {} is none of the Open Inference Protocol", Quote(target, 200)),
                   {"NOT_FOUND", "path", std::string(target), ""});
  }

  // Asks who calls, and may go on once the body has come.
  StatusOrBegun BeginCall(const HttpRequest& request, const std::string& name, const std::string& route,
                          Serve serve) const {
    if (auto refused = RefuseEncoding(request, name == kInfer)) return *std::move(refused);
    HttpCaller caller = HttpCallerOf(request);
    const Method& method = methods_.at(name);
    caller.span = BeginSpan(request, method, route);
    if (authorize_ != nullptr && method.right) {
      std::string retry_after;
      auto identity = authorize_(CredentialsOf(request), *method.right, InferenceRpc(name).path,
                                 [&](const std::string&, const std::string&) { retry_after = "1"; });
      if (!identity.ok()) {
        HttpAnswer answer = ErrorOf(identity.status());
        SetHttpStatus(answer.status, ToGrpc(identity.status(), false), caller.span.get());
        if (!retry_after.empty()) answer.fields.emplace_back("Retry-After", retry_after);
        return answer;
      }
      caller.identity = *std::move(identity);
    }
    return HttpContinuation(
        [caller = std::move(caller), serve = std::move(serve)](auto exchange) { serve(std::move(exchange), caller); });
  }

  std::shared_ptr<CallSpan> BeginSpan(const HttpRequest& request, const Method& method,
                                      const std::string& route) const {
    Tracer* const tracer = core_->tracer.get();
    if (tracer == nullptr) return nullptr;
    auto begun = tracer->Begin(request.field(kTraceparent), request.field(kTracestate), method.is_probe(),
                               request.verb + " " + route);
    if (begun == nullptr) return nullptr;
    const auto end = [tracer](CallSpan* ended) { tracer->End(std::unique_ptr<CallSpan>(ended)); };
    const std::shared_ptr<CallSpan> span(begun.release(), end);
    const HttpPeer& peer = *request.peer;
    span->Set("http.request.method", request.verb);
    span->Set("http.route", route);
    span->Set("url.path", std::string_view(request.target).substr(0, request.target.find('?')));
    span->Set("url.scheme", peer.is_tls || peer.is_trusted_proxy ? "https" : "http");
    SetPeer(request.caller, peer.is_unix(), span.get());
    return span;
  }

  // Answers a request that cannot be read. It counts as a call.
  void Refuse(const Method& method, const HttpCaller& caller, HttpExchange& exchange,
              const absl::Status& status) const {
    method.metrics->Start();
    method.metrics->CountError(DetailsOf(status).reason);
    core_->admission->CountStart();
    core_->admission->CountFailure();
    method.metrics->End(static_cast<int>(status.code()), {});
    HttpAnswer answer = ErrorOf(status);
    if (absl::IsUnavailable(status)) answer.fields.emplace_back("Retry-After", "1");
    SetHttpStatus(answer.status, ToGrpc(status, false), caller.span.get());
    exchange.Answer(std::move(answer), nullptr);
  }

  void Control(std::shared_ptr<HttpExchange> exchange, HttpCaller caller, const ControlRoute& route,
               const PathNames& names) const {
    const absl::Span<const std::byte> body = exchange->body().bytes;
    auto request = route.read(names, {reinterpret_cast<const char*>(body.data()), body.size()});
    if (!request.ok()) return Refuse(methods_.at(route.method), caller, *exchange, request.status());
    ServeHttpCall(core_, methods_.at(route.method), std::move(exchange), std::move(caller), *request,
                  {route.write, /*takes_long=*/false});
  }

  void Infer(const std::shared_ptr<HttpExchange>& exchange, const HttpCaller& caller, const PathNames& names) const {
    const auto json_bytes = JsonBytesOf(exchange->request(), exchange->body().bytes.size());
    const bool is_short = json_bytes.ok() && *json_bytes <= kParsedAtOnce;
    if (is_short && !IsCompressed(exchange->request()))
      return InferFrom(Read(*exchange, caller, names), exchange, caller);
    if (caller.span != nullptr) caller.span->Enter(Phase::kQueue);
    const TaskOwner owner{CallerName(caller.identity.get(), caller.connection), exchange->request().peer->number};
    core_->pool.Submit(
        [this, exchange, caller, names] {
          if (exchange->is_gone()) return exchange->Answer({}, nullptr);
          if (caller.span != nullptr) caller.span->Enter(Phase::kPrepare);
          auto read = std::make_shared<absl::StatusOr<InferJson>>(Read(*exchange, caller, names));
          exchange->Post([this, exchange, caller, read] { InferFrom(std::move(*read), exchange, caller); });
        },
        Lane::kBulk, &owner);
  }

  absl::StatusOr<InferJson> Read(const HttpExchange& exchange, const HttpCaller& caller, const PathNames& names) const {
    try {
      SharedBytes body = exchange.body();
      if (IsCompressed(exchange.request())) {
        POSENC_ASSIGN_OR_RETURN(body, Decompressed(exchange, caller));
      }
      POSENC_ASSIGN_OR_RETURN(const size_t json_bytes, JsonBytesOf(exchange.request(), body.bytes.size()));
      return ReadInferJson(names.model, names.version, body, json_bytes);
    } catch (...) {
      return StatusOfCurrentException();
    }
  }

  // The body, whose memory is charged to the caller until it is released.
  absl::StatusOr<SharedBytes> Decompressed(const HttpExchange& exchange, const HttpCaller& caller) const {
    struct Held {
      server::Charge charge;
      std::string text;
    };
    auto held = std::make_shared<Held>();
    const Caller charged = CallerOf(caller.identity.get(), caller.connection);
    Admission::Verdict verdict = Admission::Verdict::kAdmitted;
    MemoryAccount account([&](int64_t bytes) {
      verdict = core_->admission->AdmitBytes(bytes, 0, &held->charge, charged);
      return verdict == Admission::Verdict::kAdmitted;
    });
    const MemoryScope scope(&account);
    const LargeBlocksMayBeRefused refused;
    const absl::Span<const std::byte> bytes = exchange.body().bytes;
    google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(core_->config.max_call_s);
    const auto go_on = [&]() -> absl::Status {
      core_->pool.GiveWay();
      const auto now = std::chrono::steady_clock::now();
      if (exchange.is_gone()) return absl::CancelledError("the caller is gone");
      if (core_->computing_ends.load() <= now) return Unavailable("DRAINING", "the server is shutting down");
      if (until <= now) return absl::DeadlineExceededError("took longer than --max-call-seconds");
      return absl::OkStatus();
    };
    const auto most = static_cast<size_t>(core_->config.limits.max_request_bytes);
    try {
      POSENC_ASSIGN_OR_RETURN(held->text, Inflate(&stream, most, "body", go_on));
    } catch (const std::bad_alloc&) {
      if (verdict != Admission::Verdict::kTooLarge) return Unavailable("OVERLOADED", "too many bytes in flight");
      return TooLarge("body", "more bytes once decompressed", "must fit --max-in-flight-bytes or the policy's limit");
    }
    return SharedBytes{{reinterpret_cast<const std::byte*>(held->text.data()), held->text.size()}, held};
  }

  void InferFrom(absl::StatusOr<InferJson> read, std::shared_ptr<HttpExchange> exchange, HttpCaller caller) const {
    if (!read.ok()) return Refuse(methods_.at(kInfer), caller, *exchange, read.status());
    const bool writes_elements = read->forms.HasJson();
    auto write = [forms = std::move(read->forms)](const grpc::ByteBuffer& answer) {
      return WriteInferJson(answer, forms);
    };
    ServeHttpCall(core_, methods_.at(kInfer), std::move(exchange), std::move(caller), read->request,
                  {std::move(write), writes_elements});
  }

  Core* const core_;
  const Authorize authorize_;
  std::map<std::string, Method, std::less<>> methods_;  // of inference.GRPCInferenceService, by name
};

}  // namespace

HttpHandler MakeRestHandler(Core* core, const Methods& methods, Authorize authorize) {
  auto handler = std::make_shared<const RestHandler>(core, methods, std::move(authorize));
  return [handler](const HttpRequest& request) { return handler->Begin(request); };
}

}  // namespace posenc::server
