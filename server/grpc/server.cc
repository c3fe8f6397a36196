#include "server/grpc/server.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <future>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "grpc/grpc.h"
#include "grpc/support/log.h"
#include "grpcpp/ext/health_check_service_server_builder_option.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/version_info.h"
#include "posenc/base/status.h"
#include "prometheus/text_serializer.h"
#include "server/calls/inference_service.h"
#include "server/calls/status_map.h"
#include "server/core/log.h"
#include "server/grpc/load_reports.h"
#include "server/grpc/otlp_exporter.h"
#include "server/grpc/reflection.h"
#include "server/grpc/service.h"
#include "server/grpc/tls_credentials.h"
#include "server/rest/rest_service.h"

namespace posenc::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int kSlack = 1 << 20;
constexpr seconds kWatchdogGrace{5};
// Time for what a file system does at the end: reading one file, and closing the descriptors of callers.
constexpr milliseconds kFilesEnd{1000};
// Calls that may be there without being admitted, however few may be admitted: messages that have come may not be read
// yet.
constexpr int64_t kLeastUnadmitted = 1024;
// Conversion of a flag's value to gRPC's int, clamped to its maximum.
int ToInt(int64_t value) { return static_cast<int>(std::min<int64_t>(value, std::numeric_limits<int>::max())); }
int ToMilliseconds(int64_t in_seconds) { return ToInt(in_seconds * 1000); }

void SetTransport(const Config& config, grpc::ServerBuilder* builder) {
  // Slightly above the admission limit, whose error says more. It does not bound memory: gRPC buffers a message of any
  // size before it refuses it. The resource quota bounds that.
  builder->SetMaxReceiveMessageSize(ToInt(config.limits.max_request_bytes + kSlack));
  builder->SetMaxSendMessageSize(-1);  // unlimited: answers are bounded before they are computed
  grpc::ResourceQuota quota("posenc");
  quota.Resize(static_cast<size_t>(config.memory_quota_bytes));
  builder->SetResourceQuota(quota);
  // gRPC would decompress a message before its size can be checked. Call does so instead, for gzip. Answers are not
  // compressed: gRPC would do that on the thread that serves all callers.
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  // Disables gRPC's own health service, even if other code in the process has enabled it.
  builder->SetOption(std::make_unique<grpc::HealthCheckServiceServerBuilderOption>(nullptr));
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, ToMilliseconds(config.handshake_timeout_s));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, ToInt(config.max_concurrent_streams));
  // Else newer versions (1.83) count a call until they have freed it, and refuse calls of a client that keeps more of
  // them waiting on a connection.
  builder->AddChannelArgument("grpc.http.overload_protection", 0);
  // They also cancel calls at random, of any caller, while more than 1,000 wait for Expect(). UnadmittedCalls is fair.
  for (const char* limit : {"grpc.server.max_pending_requests", "grpc.server.max_pending_requests_hard_limit"}) {
    builder->AddChannelArgument(limit, std::numeric_limits<int>::max());
  }
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, ToInt(config.max_metadata_bytes));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, ToMilliseconds(config.max_connection_age_s));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, ToMilliseconds(config.max_connection_age_grace_s));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, ToMilliseconds(config.keepalive_time_s));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ToMilliseconds(config.keepalive_timeout_s));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              ToMilliseconds(config.min_ping_interval_s));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

// Writes gRPC's own messages to the log, which limits their rate. Newer versions of gRPC log by Abseil, which
// StartLog() silences.
void SendLogOfGrpc() {
#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR < 65
  gpr_set_log_function([](gpr_log_func_args* args) {
    if (absl::StartsWithIgnoreCase(args->message, "assertion failed")) {
      // gRPC ends the process when this returns, and lines in the log's queue with it.
      Log(LogLevel::critical, "gRPC aborts",
          {{"message", Quote(args->message, 256)}, {"place", absl::StrCat(args->file, ":", args->line)}});
      return FlushLog(seconds(1));
    }
    LogCall(LogLevel::debug, "grpc", {{"message", Quote(args->message, 256)}});
  });
#endif
}

// Waits until the condition holds, and not beyond `deadline`. A check may take a microsecond for each connection:
// checks take at most a fifth of the time.
void WaitUntil(steady_clock::time_point deadline, const std::function<bool()>& condition) {
  for (auto begin = steady_clock::now(); !condition() && begin < deadline; begin = steady_clock::now()) {
    const auto took = steady_clock::now() - begin;
    std::this_thread::sleep_for(std::max<steady_clock::duration>(4 * took, milliseconds(1)));
  }
}

UnadmittedCalls LimitOfUnadmittedCalls(Core* core) {
  const int64_t admitted = core->config.max_in_flight_requests;
  return {.limit = FairLimit::Create(std::max(2 * admitted, kLeastUnadmitted)), .refuse = [core](Rpc* rpc) {
            core->admission->CountRefusal();
            rpc->AddTrailer("grpc-retry-pushback-ms", std::to_string(core->config.retry_pushback_ms));
            return ToGrpc(Unavailable("OVERLOADED", "too many calls wait for their first message"), false);
          }};
}

}  // namespace

// Ends the process if it is not destroyed in time.
class Server::Watchdog {
 public:
  Watchdog() : thread_([this] { Watch(); }) {}
  ~Watchdog() {
    {
      std::lock_guard lock(mutex_);
      dismissed_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Sets the time, from now.
  void Begin(steady_clock::duration time) {
    {
      std::lock_guard lock(mutex_);
      time_ = time;
    }
    changed_.notify_all();
  }

 private:
  void Watch() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return dismissed_ || time_; });
    if (changed_.wait_for(lock, time_.value_or(seconds(0)), [this] { return dismissed_; })) return;
    std::_Exit(EXIT_FAILURE);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<steady_clock::duration> time_;
  bool dismissed_ = false;
  std::thread thread_;
};

Server::Server(const Config& config)
    : watchdog_(std::make_unique<Watchdog>()),
      core_(config),
      memory_(config.shared_memory_socket.empty() && config.inference_memory_prefix.empty()
                  ? nullptr
                  : std::make_shared<SharedMemoryRegistry>(config.max_regions, config.max_region_bytes,
                                                           /*names_have_half=*/!config.shared_memory_socket.empty())),
      named_memory_(std::make_unique<NamedMemory>(memory_.get(), config.inference_memory_prefix)) {
  core_.memory = memory_;
  core_.devices = &devices_.devices();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Config& config, const wire::Operations& operations) {
  // Keeps gRPC initialized until the process ends: the destructor of its last object may block for ten seconds (a
  // thread stuck in poll, seen with 1.51).
  [[maybe_unused]] static const bool kept_up = (grpc_init(), true);
  std::unique_ptr<Server> server(new Server(config));
  server->devices_.Load(config.device_plugin, server->core_.pool);
  if (!config.shared_memory_socket.empty()) {
    POSENC_ASSIGN_OR_RETURN(server->side_socket_,
                            SideSocket::Start(config.shared_memory_socket, config.shared_memory_prefix,
                                              server->memory_.get(), &server->devices_.devices()));
  }
  POSENC_ASSIGN_OR_RETURN(server->models_, Models::Open({config.model_repository, config.model_name, config.limits}));
  server->read_models_ = std::make_unique<ReloadThread>("models read", [models = server->models_.get()] {
    const absl::Status status = models->Reload();
    Log(status.ok() ? LogLevel::info : LogLevel::err, "models read",
        {{"status", status.ok() ? "OK" : std::string(status.message())}});
  });
  SendLogOfGrpc();
  if (!config.policy.empty()) {
    POSENC_ASSIGN_OR_RETURN(server->access_, AccessControl::Load({config.policy, config.token_file}));
    server->read_policy_ = std::make_unique<ReloadThread>("policy not reloaded; the old one is kept",
                                                          [access = server->access_.get()] { access->Reload(); });
  }
  POSENC_ASSIGN_OR_RETURN(
      server->listener_,
      Listener::Listen(
          {.addresses = config.listen,
           .http_addresses = config.http_listen,
           .trusted_proxy = config.trusted_proxy,
           .http_trusted_proxy = config.http_trusted_proxy,
           .max_connections = static_cast<size_t>(config.max_connections),
           .max_connections_per_peer = static_cast<size_t>(config.max_connections_per_peer),
           // TCP's timeout runs, too, while the client's host acknowledges but takes nothing.
           .send_timeout = seconds(std::max(config.keepalive_timeout_s, config.send_timeout_s)),
           .handshakes_per_second = config.tls_client_auth == "none" ? 0 : config.max_handshakes_per_second,
           .handshake_timeout = seconds(config.handshake_timeout_s)}));
  grpc::ServerBuilder builder;
  SetTransport(config, &builder);
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  server->plain_ =
      builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, grpc::InsecureServerCredentials());
  if (!config.trusted_proxy.empty()) {
    // Local credentials check that the connection is of a Unix socket, and mark its calls (IsOfTrustedProxy).
    server->proxied_ = builder.experimental().AddExternalConnectionAcceptor(
        Type::FROM_FD, grpc::experimental::LocalServerCredentials(UDS));
  }
  if (!config.tls_cert.empty()) {
    POSENC_ASSIGN_OR_RETURN(server->certificates_,
                            CertificateStore::Load({config.tls_cert, config.tls_key, config.tls_client_ca}));
    server->read_certificates_ =
        std::make_unique<ReloadThread>("certificate not reloaded; the old one is kept",
                                       [certificates = server->certificates_.get()] { certificates->Reload(); });
    server->credentials_ = TlsCredentials(server->certificates_, config.tls_client_auth);
    server->tls_ = builder.experimental().AddExternalConnectionAcceptor(Type::FROM_FD, server->credentials_);
  }
  server->polling_ = std::make_unique<CompletionQueueLoop>(&builder);
  server->grpc_server_ = builder.BuildAndStart();
  if (server->grpc_server_ == nullptr) return absl::InternalError("gRPC cannot start its server");
  server->health_.Set("", true);
  server->health_.Set(wire::kServiceName, true);
  server->health_.Set(kInferenceServiceName, true);
  server->devices_.ReportTo(&server->health_);
  POSENC_RETURN_IF_ERROR(server->StartTraces());
  Methods methods;
  const ServerParts parts = {&server->devices_, server->listener_.get(), server->memory_.get(),
                             server->certificates_.get(), server->access_.get()};
  AddServiceTo(&methods, &server->core_, parts, operations);
  const auto is_ready = [self = server.get()] { return self->healthy_ && !self->draining_; };
  AddInferenceTo(&methods, std::make_shared<const InferenceParts>(InferenceParts{
                               &server->core_, server->models_.get(), server->named_memory_.get(), is_ready}));
  server->health_.AddTo(&methods, 2 * static_cast<size_t>(config.max_connections), &server->core_.timers,
                        seconds(config.send_timeout_s));
  AddLoadReportsTo(&methods, &server->core_.load, static_cast<size_t>(config.max_connections), &server->core_.timers,
                   seconds(config.send_timeout_s));
  if (config.reflection == "on") AddReflectionTo(&methods, &server->core_);
  if (!config.http_listen.empty() || !config.http_trusted_proxy.empty()) server->StartRest(methods);
  server->polling_->Start(std::move(methods),
                          {.threads = static_cast<size_t>(config.io_threads),
                           .busy = &server->core_.io_threads,
                           .receive_timeout = seconds(config.receive_timeout_s),
                           .unadmitted = LimitOfUnadmittedCalls(&server->core_),
                           .authorize = server->access_ == nullptr ? Authorize() : server->MakeAuthorize(),
                           .tracer = server->core_.tracer.get(),
                           .has_trusted_proxy = server->proxied_ != nullptr},
                          &server->core_.timers, &server->core_.metrics);
  POSENC_RETURN_IF_ERROR(server->StartProbes(parts));
  server->listener_->Start(
      [plain = server->plain_.get(), tls = server->tls_.get(), proxied = server->proxied_.get(),
       rest = server->rest_.get()](Descriptor socket, const ListeningSocket& listening, Listener::Kind kind) {
        if (listening.is_http) return rest->Serve(std::move(socket), kind);
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
        connection.listener_fd = listening.socket.get();  // newer versions of gRPC refuse a connection without it
        connection.fd = socket.Release();
        auto* const of_tcp = tls == nullptr ? plain : tls;
        auto* const acceptor = kind == Listener::Kind::kTcp ? of_tcp : kind == Listener::Kind::kUnix ? plain : proxied;
        acceptor->HandleNewConnection(&connection);
      });
  return server;
}

Authorize Server::MakeAuthorize() {
  return [this](const CallerCredentials& credentials, Right right, const std::string& method,
                const AddTrailer& add_trailer) {
    auto identity = access_->Admit(credentials, right, method);
    if (add_trailer == nullptr) return identity;  // one message of a stream, which counts its errors itself
    if (absl::IsUnavailable(identity.status())) {
      core_.admission->CountRefusal();
      add_trailer("grpc-retry-pushback-ms", std::to_string(core_.config.retry_pushback_ms));
    }
    if (!identity.ok()) core_.metrics.Of(method)->CountError(DetailsOf(identity.status()).reason);
    return identity;
  };
}

absl::Status Server::StartTraces() {
  const auto read = ReadTraceSettings(core_.config.otlp_endpoint, &std::getenv);
  if (!read.ok()) {
    if (!core_.config.otlp_endpoint.empty()) return read.status();
    // Variables alone may be meant for other programs.
    Log(LogLevel::err, "no traces", {{"error", read.status().message()}});
    return absl::OkStatus();
  }
  const std::optional<TraceSettings>& settings = *read;
  if (!settings) return absl::OkStatus();
  for (const std::string& name : UnusedTraceVariables(environ)) {
    Log(LogLevel::warn, "variable not used", {{"name", name}});
  }
  core_.tracer = std::make_unique<Tracer>(*settings, MakeOtlpExporter(*settings), &core_.metrics_registry);
  Log(LogLevel::info, "traces", {{"collector", settings->target}, {"tls", settings->is_secure}});
  return absl::OkStatus();
}

void Server::StartRest(const Methods& methods) {
  const Config& config = core_.config;
  HttpServer::Options options = {.threads = static_cast<size_t>(config.io_threads),
                                 .certificates = certificates_,
                                 .tls_client_auth = config.tls_client_auth};
  options.shared = {.handler = MakeRestHandler(&core_, methods, access_ == nullptr ? Authorize() : MakeAuthorize()),
                    .limits = {.max_header_bytes = static_cast<size_t>(config.max_metadata_bytes),
                               .max_body_bytes = static_cast<size_t>(config.limits.max_request_bytes),
                               .handshake_timeout = seconds(config.handshake_timeout_s),
                               .receive_timeout = seconds(config.receive_timeout_s),
                               .send_timeout = seconds(config.send_timeout_s),
                               .max_age = seconds(config.max_connection_age_s)},
                    .body_bytes = FairLimit::Create(config.memory_quota_bytes),
                    .buffers = core_.buffer_pool,
                    .is_draining = [this] { return draining_.load(); },
                    .busy = &core_.http_threads};
  rest_ = std::make_unique<HttpServer>(std::move(options));
}

absl::Status Server::StartProbes(const ServerParts& parts) {
  const auto text = [](std::string body) {
    return HttpAnswer{.body = std::move(body), .content_type = "text/plain; charset=utf-8"};
  };
  const auto answer = [text](bool good, const char* otherwise) {
    HttpAnswer said = text(good ? "ok\n" : otherwise);
    said.status = good ? 200 : 503;
    return said;
  };
  ProbeEndpoint::Handlers handlers;
  handlers["/livez"] = [this, answer] { return answer(core_.CountStuckThreads() == 0, "a thread is stuck\n"); };
  handlers["/readyz"] = [this, answer] {
    if (draining_) return answer(false, "draining\n");
    return answer(healthy_, "a thread is stuck, or no connection can be accepted\n");
  };
  if (const std::string& address = core_.config.health_listen; !address.empty()) {
    POSENC_ASSIGN_OR_RETURN(probes_, ProbeEndpoint::Start("--health-listen", address, handlers));
  }
  const std::string& address = core_.config.metrics_listen;
  if (address.empty()) return absl::OkStatus();
  state_metrics_ = std::make_unique<StateMetrics>([this, parts](v1::GetServerInfoResponse* state, bool* serving) {
    DescribeServer(core_, parts, state);
    *serving = healthy_ && !draining_;
  });
  handlers["/metrics"] = [this, text] {
    std::vector<prometheus::MetricFamily> all = core_.metrics_registry.Collect();
    std::vector<prometheus::MetricFamily> state = state_metrics_->Collect();
    std::move(state.begin(), state.end(), std::back_inserter(all));
    HttpAnswer scraped = text(prometheus::TextSerializer().Serialize(all));
    scraped.content_type = "text/plain; version=0.0.4; charset=utf-8";
    return scraped;
  };
  POSENC_ASSIGN_OR_RETURN(metrics_, ProbeEndpoint::Start("--metrics-listen", address, std::move(handlers)));
  return absl::OkStatus();
}

std::string Server::ReadyModels() const {
  constexpr size_t kMost = 100;
  const std::shared_ptr<const Models::Table> all = models_->All();
  std::vector<std::string> names;
  for (const auto& [name, model] : *all) {
    const bool is_encoding = model->ready() && name.ends_with("." + model->encoding->name);
    if (model->ready() && model->file != nullptr && !is_encoding) names.push_back(name);
  }
  const size_t left_out = names.size() - std::min(names.size(), kMost);
  names.resize(names.size() - left_out);
  return absl::StrJoin(names, ",") + (left_out == 0 ? "" : absl::StrCat(",... and ", left_out, " more"));
}

int64_t Server::CountEndedConnections() {
  const Listener::Counters connections = listener_->counters();
  return connections.accepted - connections.open;
}

void Server::Maintain() {
  if (read_certificates_ != nullptr) read_certificates_->Ask();
  if (read_policy_ != nullptr) read_policy_->Ask();
  core_.load.Report();
  const size_t stuck = core_.CountStuckThreads();
  const bool accepting = listener_->IsAccepting();
  const bool healthy = stuck == 0 && accepting;
  if (healthy == healthy_) return;
  healthy_ = healthy;
  Log(healthy ? LogLevel::info : LogLevel::err, "health",
      {{"serving", healthy}, {"stuck_threads", static_cast<int64_t>(stuck)}, {"accepting_connections", accepting}});
  health_.Set("", healthy);
  health_.Set(wire::kServiceName, healthy);
  health_.Set(kInferenceServiceName, healthy);
}

Server::~Server() {
  devices_.ReportTo(nullptr);
  if (listener_ != nullptr) listener_->Close();
  if (grpc_server_ != nullptr) grpc_server_->Shutdown(std::chrono::system_clock::now());
}

bool Server::EndFiles() {
  const auto until = steady_clock::now() + kFilesEnd;
  const std::future<void> closed = closing_.Do([this] { side_socket_.reset(); });
  bool has_ended = true;
  for (ReloadThread* thread : {read_models_.get(), read_policy_.get(), read_certificates_.get()}) {
    if (thread != nullptr && !thread->Stop(until - steady_clock::now())) has_ended = false;
  }
  return closed.wait_until(until) == std::future_status::ready && has_ended;
}

std::set<TcpEnd> Server::BusyConnections(bool with_uploads) {
  std::set<TcpEnd> busy = polling_->BusyConnections(with_uploads);
  if (rest_ != nullptr) busy.merge(rest_->BusyConnections(with_uploads));
  return busy;
}

bool Server::Drain() {
  draining_ = true;
  const seconds timeout(core_.config.drain_timeout_s);
  watchdog_->Begin(seconds(core_.config.drain_notice_s) + timeout + kWatchdogGrace);
  devices_.ReportTo(nullptr);
  health_.EndServing();
  std::this_thread::sleep_for(seconds(core_.config.drain_notice_s));
  listener_->Close();

  const auto begin = steady_clock::now(), deadline = begin + timeout;
  // Calls of callers that do not send or read, and calls that still compute, end before the deadline, so that all calls
  // have ended by then.
  const milliseconds for_calls = milliseconds(timeout) * 3 / 4;
  core_.timers.LimitWaits(for_calls);
  core_.computing_ends = begin + for_calls;
  // gRPC 1.51 ends no call, not even a cancelled one, while its connection does not take what gRPC has begun to send.
  const auto cut = [this] {
    const auto number = static_cast<int64_t>(listener_->CutBusy());
    if (number > 0) Log(LogLevel::warn, "cut: connections that do not read", {{"number", number}});
  };
  const Timers::Timer late = core_.timers.At(begin + for_calls * 7 / 6, cut), last = core_.timers.At(deadline, cut);

  // Open connections are served as before until, for a moment, no request is in progress: then all of them can be
  // closed at once, and no caller notices more than a lost connection, after which it retries. Under continuous load
  // there may be no such moment; then each connection is closed as it falls idle.
  WaitUntil(begin + milliseconds(timeout) / 4,
            [this] { return BusyConnections(/*with_uploads=*/true).empty() && listener_->AreQuiet(); });
  core_.admission->Drain();
  bool answered = false;
  WaitUntil(deadline, [this, &answered] {
    const std::set<TcpEnd> busy = BusyConnections(/*with_uploads=*/false);
    answered = busy.empty();
    return listener_->CloseIdle(busy) == 0 && answered;  // a call of a closed connection may not have heard of it
  });
  // gRPC 1.51 ends a call that arrives after Shutdown() with CANCELLED, which no client retries. So it comes after the
  // connections.
  grpc_server_->Shutdown(std::chrono::system_clock::now());
  polling_.reset();
  grpc_server_.reset();
  rest_.reset();
  core_.tracer.reset();
  return answered;
}

}  // namespace posenc::server
