#include "server/core/config.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <limits>
#include <set>
#include <string_view>
#include <type_traits>

#include "CLI/CLI.hpp"
#include "posenc/base/cgroup.h"
#include "posenc/base/version.h"
#include "posenc/command_line/arguments.h"
#include "posenc/command_line/help_text.h"
#include "posenc/command_line/man_page.h"

namespace posenc::server {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = 1024 * kKiB;
constexpr int64_t kGiB = 1024 * kMiB;
// Largest message: gRPC's sizes are ints, and SetTransport() adds 1 MiB to the limit of requests.
constexpr int64_t kMaxMessageBytes = std::numeric_limits<int32_t>::max() - kMiB;
constexpr int64_t kMaxQuotaBytes = int64_t{1} << 50;
constexpr int64_t kMostConnections = 4096;  // by default
// By default, for each receiving thread. With --max-concurrent-streams, a peer has 2,048 calls that wait for it at
// most.
constexpr int64_t kConnectionsOfPeer = 64;
constexpr int64_t kDay = 24 * 60 * 60;

enum class Unit { kCount, kBytes, kSeconds, kMilliseconds };

struct Integer {
  Unit unit;
  int64_t least;
  int64_t most;
};
struct Text {};
struct Texts {};  // repeatable flag; each occurrence may hold several values, separated by commas
struct Choice {
  std::vector<std::string> of;
};

// Single list of all settings: calls visit(group, flag, member, kind, help) for each.
template <typename AConfig, typename Visitor>
void VisitSettings(AConfig& c, Visitor&& visit) {
  using enum Unit;
  const char* group = "Serving";
  visit(group, "--listen", c.listen, Texts{}, "address and port to listen on, or unix:PATH; may be repeated");
  visit(group, "--http-listen", c.http_listen, Texts{},
        "address and port for the Open Inference Protocol over HTTP/REST, or unix:PATH; may be repeated; empty: none");
  visit(group, "--port-file", c.port_file, Text{},
        "file to which the first bound port is written once the server listens");
  visit(group, "--metrics-listen", c.metrics_listen, Text{},
        "address and port for HTTP: /metrics for Prometheus, /livez and /readyz; empty: none");
  visit(group, "--health-listen", c.health_listen, Text{},
        "address and port for HTTP probes alone: /livez and /readyz; empty: none");
  visit(group, "--otlp-endpoint", c.otlp_endpoint, Text{},
        "OpenTelemetry collector's gRPC address, such as http://localhost:4317, for traces; empty: OTEL_* variables");
  visit(group, "--tls-cert", c.tls_cert, Text{},
        "PEM file of the server's certificate and its intermediate CAs; empty: no TLS. Unix sockets never use TLS");
  visit(group, "--tls-key", c.tls_key, Text{}, "PEM file of the certificate's private key, without a passphrase");
  visit(group, "--tls-client-ca", c.tls_client_ca, Texts{},
        "PEM file of CAs whose certificates clients may have; may be repeated");
  visit(group, "--tls-client-auth", c.tls_client_auth, Choice{{"none", "optional", "required"}},
        "whether clients must have a certificate of --tls-client-ca; optional: none, or a right one");
  visit(group, "--policy", c.policy, Text{},
        "JSON file of the identities that may call, and their rights and limits; empty: everybody may call");
  visit(group, "--token-file", c.token_file, Text{},
        "file of the bearer tokens of --policy's identities: lines NAME SHA256 [EXPIRY]");
  visit(group, "--trusted-proxy", c.trusted_proxy, Text{},
        "unix:PATH for a proxy of the same user, whose headers x-posenc-peer and x-posenc-client-cert are believed");
  visit(group, "--http-trusted-proxy", c.http_trusted_proxy, Text{},
        "unix:PATH for such a proxy that passes on the Open Inference Protocol over HTTP");
  visit(group, "--threads", c.threads, Integer{kCount, 0, 4096},
        "number of compute threads; 0: as many as CPU quota and affinity allow");
  visit(group, "--io-threads", c.io_threads, Integer{kCount, 0, 64},
        "number of threads for network I/O and small calls; 0: one per two CPUs, at most 16, one if fewer than 4");
  visit(group, "--device-plugin", c.device_plugin, Text{},
        "path of a plugin for other devices, such as /usr/lib/posenc/libposenc_cuda.so; empty: CPU only");
  visit(group, "--reflection", c.reflection, Choice{{"on", "off"}}, "whether to serve gRPC server reflection");
  visit(group, "--model-repository", c.model_repository, Text{},
        "folder of models' folders, or of one model, for the Open Inference Protocol; empty: no models by file");
  visit(group, "--model-name", c.model_name, Text{},
        "name of a --model-repository that is one model; empty: the folder's");
  visit(group, "--model-control", c.model_control, Choice{{"on", "off"}},
        "whether calls of the Open Inference Protocol may load and unload models of --model-repository");
  visit(group, "--plan-cache-bytes", c.plan_cache_bytes, Integer{kBytes, 0, kGiB},
        "size of the LRU cache of frequencies");
  visit(group, "--table-cache-bytes", c.table_cache_bytes, Integer{kBytes, 0, 64 * kGiB},
        "size of the LRU cache of cosines and sines for rotations; 0: no cache");
  visit(group, "--answer-pool-bytes", c.answer_pool_bytes, Integer{kBytes, 0, kMaxQuotaBytes},
        "size of the buffer pool for answers; 0: a quarter of --max-in-flight-bytes");

  group = "Limits of one request";
  visit(group, "--max-request-bytes", c.limits.max_request_bytes, Integer{kBytes, kKiB, kMaxMessageBytes},
        "maximum size of a request");
  visit(group, "--max-output-bytes", c.limits.max_output_bytes, Integer{kBytes, 1, kMaxMessageBytes},
        "maximum tensor bytes of an answer");
  visit(group, "--max-tensor-rank", c.limits.max_tensor_rank, Integer{kCount, 1, 32},
        "maximum number of dimensions of a tensor");
  visit(group, "--max-rotary-dim", c.limits.max_rotary_dim, Integer{kCount, 2, kMiB},
        "maximum number of rotated elements of a head");
  visit(group, "--max-heads", c.limits.max_heads, Integer{kCount, 1, kMiB},
        "maximum number of heads of a bias, or of scores and values with content");
  visit(group, "--max-config-json-bytes", c.limits.max_config_json_bytes, Integer{kBytes, kKiB, 4 * kMiB},
        "maximum size of a model's config.json");
  visit(group, "--max-sequences", c.limits.max_sequences, Integer{kCount, 1, 16 * kMiB},
        "maximum number of sequences of a request that are listed one by one");
  visit(group, "--max-plan-values", c.limits.max_plan_values, Integer{kCount, 1, 64 * kMiB},
        "maximum number of frequencies of a request, over all its sequence lengths");
  visit(group, "--max-bias-values", c.limits.max_bias_values, Integer{kCount, 1, 64 * kMiB},
        "maximum cost of a request's bias, in values: heads times distances, or work that takes as long");
  visit(group, "--max-call-cost", c.max_call_cost, Integer{kCount, 1, int64_t{1} << 40},
        "maximum number of slow steps of a call, or of one message of a stream: values beyond float64's arithmetic");

  group = "Admission";
  visit(group, "--max-in-flight-bytes", c.max_in_flight_bytes, Integer{kBytes, 0, kMaxQuotaBytes},
        "maximum bytes of all requests and answers in flight; 0: a quarter of the memory, at most 1 GiB");
  visit(group, "--max-in-flight-requests", c.max_in_flight_requests, Integer{kCount, 1, kMiB},
        "maximum number of calls in flight");
  visit(group, "--retry-pushback", c.retry_pushback_ms, Integer{kMilliseconds, 0, kDay * 1000},
        "time after which a refused client may retry");

  group = "Shared memory";
  visit(group, "--shared-memory-socket", c.shared_memory_socket, Text{},
        "path of the Unix socket on which local clients register memory; empty: no shared memory");
  visit(group, "--shared-memory-prefix", c.shared_memory_prefix, Text{},
        "name prefix of POSIX shared memory that may be registered by name, such as /posenc-; empty: none may");
  visit(group, "--inference-memory-prefix", c.inference_memory_prefix, Text{},
        "name prefix of POSIX shared memory that callers on this host may register by the Open Inference Protocol, "
        "such as /; empty: none may");
  visit(group, "--max-regions", c.max_regions, Integer{kCount, 1, 4096}, "maximum number of registered regions");
  visit(group, "--max-region-bytes", c.max_region_bytes, Integer{kBytes, 1, kMaxQuotaBytes},
        "maximum total size of registered regions; at most a quarter of a limit of virtual memory (ulimit -v)");

  group = "Transport";
  visit(group, "--max-connections", c.max_connections, Integer{kCount, 0, kMiB},
        "maximum number of connections; 0: three eighths of the descriptors (ulimit -n), a quarter with "
        "--trusted-proxy, at most 4096");
  visit(group, "--max-connections-per-peer", c.max_connections_per_peer, Integer{kCount, 0, kMiB},
        "maximum number of connections of an IPv4 address or an IPv6 /64 network; 0: 64 for each of --io-threads, at "
        "most half of --max-connections");
  visit(
      group, "--max-handshakes-per-second", c.max_handshakes_per_second, Integer{kCount, 0, kMiB},
      "TLS handshakes of an IPv4 address or an IPv6 /64 network, unless --tls-client-auth is none; two seconds' worth "
      "may begin at once, others wait for up to --handshake-timeout; 0: no limit");
  visit(group, "--handshake-timeout", c.handshake_timeout_s, Integer{kSeconds, 1, kDay},
        "time for a new connection to complete the handshakes of TLS and HTTP/2, and before, to wait for its turn");
  visit(group, "--max-concurrent-streams", c.max_concurrent_streams, Integer{kCount, 1, kMiB},
        "maximum number of calls in flight on a connection");
  visit(group, "--max-connection-age", c.max_connection_age_s, Integer{kSeconds, 1, 365 * kDay},
        "lifetime of a connection; the client then resolves the address again and reconnects");
  visit(group, "--max-connection-age-grace", c.max_connection_age_grace_s, Integer{kSeconds, 1, 365 * kDay},
        "time for calls in flight to end after --max-connection-age");
  visit(group, "--keepalive-time", c.keepalive_time_s, Integer{kSeconds, 1, 365 * kDay},
        "time between the server's pings");
  visit(group, "--keepalive-timeout", c.keepalive_timeout_s, Integer{kSeconds, 1, kDay},
        "time for a client to answer a ping; then the connection and its calls end");
  visit(group, "--min-ping-interval", c.min_ping_interval_s, Integer{kSeconds, 0, kDay},
        "minimum time between a client's pings");
  visit(group, "--max-metadata-bytes", c.max_metadata_bytes, Integer{kBytes, kKiB, kMiB},
        "maximum size of a call's headers");
  visit(group, "--send-timeout", c.send_timeout_s, Integer{kSeconds, 1, kDay},
        "time for a client to take an answer or a message of a stream; then the call is cancelled");
  visit(group, "--receive-timeout", c.receive_timeout_s, Integer{kSeconds, 1, kDay},
        "time for a client to send a call's first message, and each further message of a stream");
  visit(group, "--max-call-seconds", c.max_call_s, Integer{kSeconds, 1, 365 * kDay},
        "maximum duration of a unary call, even if its deadline is later or absent");
  visit(group, "--max-stream-seconds", c.max_stream_s, Integer{kSeconds, 1, 365 * kDay},
        "maximum duration of a stream, even if its deadline is later or absent");
  visit(group, "--stuck-thread-seconds", c.stuck_thread_s, Integer{kSeconds, 1, 365 * kDay},
        "time in one task after which a thread counts as stuck, and health is NOT_SERVING");
  visit(group, "--memory-quota-bytes", c.memory_quota_bytes, Integer{kBytes, 0, kMaxQuotaBytes},
        "quota of gRPC's own buffers, at least three times --max-in-flight-bytes; 0: that minimum");

  group = "Shutdown";
  visit(group, "--drain-notice", c.drain_notice_s, Integer{kSeconds, 0, kDay},
        "time from NOT_SERVING to the first refusal, for load balancers to notice");
  visit(group, "--drain-timeout", c.drain_timeout_s, Integer{kSeconds, 0, kDay},
        "time for calls in flight to end; then they are cancelled; three quarters of it for a caller to send or read, "
        "and for a call to compute");

  group = "Logging";
  visit(group, "--log-format", c.log_format, Choice{{"text", "json"}}, "format of the log lines on standard output");
  visit(group, "--log-level", c.log_level, Choice{{"debug", "info", "warning", "error", "off"}},
        "minimum level; debug: every call; info: calls that failed");
  visit(group, "--max-call-log-lines", c.max_call_log_lines, Integer{kCount, 0, kMiB},
        "maximum number of lines per second about calls that failed; 0: no limit");
}

std::string EnvironmentName(std::string flag) {
  flag = flag.substr(2);
  for (char& c : flag) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return "POSENC_SERVER_" + flag;
}

bool IsOfKubernetes(std::string_view name) {
  return name.starts_with("POSENC_SERVER_SERVICE_") || name == "POSENC_SERVER_PORT" ||
         (name.starts_with("POSENC_SERVER_PORT_") && std::isdigit(static_cast<unsigned char>(name[19])));
}

std::vector<std::string> UnknownVariables(const CLI::App& app) {
  std::set<std::string> known;
  for (const CLI::Option* option : app.get_options()) known.insert(option->get_envname());
  std::vector<std::string> unknown;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    if (name.starts_with("POSENC_SERVER_") && !known.contains(name) && !IsOfKubernetes(name)) unknown.push_back(name);
  }
  return unknown;
}

std::string NameOf(Unit unit) {
  switch (unit) {
    case Unit::kCount: return "COUNT";
    case Unit::kBytes: return "BYTES";
    case Unit::kSeconds: return "SECONDS";
    case Unit::kMilliseconds: return "MILLISECONDS";
  }
  __builtin_unreachable();
}

// Replaces a size with a unit by its number of bytes. Returns an error text, or "".
std::string BytesOf(std::string& size) {
  const std::string given = size;
  try {
    return CLI::AsSizeValue(/*kb_is_1000=*/false)(size);
  } catch (const CLI::ValidationError&) {
    return "is " + Quote(given) + "; must be a size in bytes, such as 1048576 or 1MiB";
  }
}

class AddOption {
 public:
  explicit AddOption(CLI::App* app) : app_(app) {}

  void operator()(const char* group, const char* flag, std::string& member, const Text&, const char* help) {
    Add(group, flag, member, help)->option_text("TEXT [" + member + "]");
  }
  void operator()(const char* group, const char* flag, std::vector<std::string>& member, const Texts&,
                  const char* help) {
    const std::string all = CLI::detail::join(member, ",");
    Add(group, flag, member, help)->delimiter(',')->allow_extra_args(false)->option_text("TEXT [" + all + "]");
  }
  void operator()(const char* group, const char* flag, std::string& member, const Choice& choice, const char* help) {
    const std::string choices = CLI::detail::join(choice.of, "|");
    Add(group, flag, member, help)
        ->check(OneOf(choice.of))
        ->type_name(choices)
        ->option_text(choices + " [" + member + "]");
  }
  template <typename Number>
  void operator()(const char* group, const char* flag, Number& member, const Integer& kind, const char* help) {
    CLI::Option* option = Add(group, flag, member, help);
    option->type_name(NameOf(kind.unit))->option_text(NameOf(kind.unit) + " [" + std::to_string(member) + "]");
    if (kind.unit == Unit::kBytes) option->transform(CLI::Validator(BytesOf, ""));
    option->check(InRange(kind.least, kind.most));
  }

 private:
  template <typename Member>
  CLI::Option* Add(const char* group, const char* flag, Member& member, const char* help) {
    return app_->add_option(flag, member, help)->envname(EnvironmentName(flag))->group(group);
  }
  CLI::App* app_;
};

// Throws CLI::ParseError for a variable whose value is not valid. CLI11 2.1 does so itself; 2.4 ignores the variable.
void RefuseIgnoredVariables(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    const std::string& name = option->get_envname();
    const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
    if (value == nullptr || *value == '\0' || option->count() > 0) continue;
    option->add_result(value);
    option->run_callback();
  }
}

ParsedArguments Wrong(const std::string& message) {
  return {.text = "posenc-server: " + message + "\nSee `posenc-server --help`.\n", .exit_status = 2};
}

}  // namespace

Machine ThisMachine() { return {AvailableCpus(), AvailableMemory()}; }

// The flags, and the settings that they write to.
struct ArgumentParser::Flags {
  Config config;
  CLI::App app{
      "gRPC server that computes positional encodings for attention.\n"
      "Sizes are in bytes and may have a suffix (KiB, MiB, GiB). Defaults are in\n"
      "brackets. Each flag can also be set by an environment variable:\n"
      "POSENC_SERVER_MAX_HEADS sets --max-heads.",
      "posenc-server"};

  Flags() {
    app.formatter(std::make_shared<WrappingFormatter>());
    app.set_version_flag("-V,--version", std::string("posenc-server ") + kVersion);
    // Ends the parsing as --version does, with another text. For packages.
    app.add_flag_callback("--man-page",
                          [this] {
                            throw CLI::CallForVersion(Roff({.app = &app,
                                                            .name = "posenc-server",
                                                            .words = "posenc-server",
                                                            .section = 8,
                                                            .groups = GroupsOf(app)}),
                                                      0);
                          })
        ->group("");
    VisitSettings(config, AddOption(&app));
  }
};

ArgumentParser::ArgumentParser() : flags_(std::make_unique<Flags>()) {}
ArgumentParser::~ArgumentParser() = default;

ParsedArguments ArgumentParser::Parse(int argc, const char* const* argv, const Machine& machine) {
  CLI::App& app = flags_->app;
  Config& config = flags_->config = Config();
  ParsedArguments parsed;
  std::vector<std::string> reversed = ReversedArguments(argc, argv);
  if (const auto flag = FindFlagWithoutValue(app, reversed)) return Wrong(flag->message);
  try {
    app.parse(std::move(reversed));
    RefuseIgnoredVariables(&app);
  } catch (const CLI::CallForVersion& version) {
    parsed.text = std::string(version.what()) + '\n';
    return parsed;
  } catch (const CLI::Success&) {
    parsed.text = app.help();
    return parsed;
  } catch (const CLI::ParseError& error) {
    return Wrong(ParseErrorMessage(app, error));
  }
  if (const std::string message = Complete(machine, &config); !message.empty()) return Wrong(message);
  parsed.config = config;
  parsed.unknown_variables = UnknownVariables(app);
  return parsed;
}

std::string Complete(const Machine& machine, Config* config) {
  if (config->threads == 0) config->threads = std::max(machine.cpus, 1);
  if (config->io_threads == 0) config->io_threads = machine.cpus < 4 ? 1 : std::min(machine.cpus / 2, 16);
  Limits& limits = config->limits;
  if (config->max_in_flight_bytes == 0) {
    // A quarter of the memory: gRPC's buffers may hold the same bytes once more, and libraries and plans need some too.
    config->max_in_flight_bytes = machine.memory_bytes == 0 ? kGiB : std::clamp(machine.memory_bytes / 4, kMiB, kGiB);
    // On a small machine the limits of one request shrink too, unless they were set.
    const Limits defaults;
    if (limits.max_request_bytes == defaults.max_request_bytes) {
      limits.max_request_bytes = std::min(limits.max_request_bytes, config->max_in_flight_bytes / 2);
    }
    if (limits.max_output_bytes == defaults.max_output_bytes) {
      limits.max_output_bytes = std::min(limits.max_output_bytes, config->max_in_flight_bytes / 2);
    }
  }
  if (limits.max_request_bytes > config->max_in_flight_bytes || limits.max_output_bytes > config->max_in_flight_bytes) {
    return "--max-in-flight-bytes (" + std::to_string(config->max_in_flight_bytes) +
           ") is less than --max-request-bytes (" + std::to_string(limits.max_request_bytes) +
           ") or --max-output-bytes (" + std::to_string(limits.max_output_bytes) + ")";
  }
  // Regions take address space, of which the process needs the rest: gRPC ends it if it cannot allocate.
  config->max_region_bytes = std::min(config->max_region_bytes, machine.virtual_memory_bytes / 4);
  if (config->max_connections == 0) {
    // Over Unix sockets there may be as many besides, and from a trusted proxy as many again.
    const int64_t eighths = config->trusted_proxy.empty() && config->http_trusted_proxy.empty() ? 3 : 2;
    config->max_connections = std::clamp<int64_t>(machine.descriptors / 8 * eighths, 1, kMostConnections);
  }
  if (config->max_connections_per_peer == 0) {
    config->max_connections_per_peer =
        std::min((config->max_connections + 1) / 2, kConnectionsOfPeer * config->io_threads);
  }
  if (std::ranges::count(config->listen, "") > 0) {
    return "--listen: is \"\"; must be ADDRESS:PORT, [ADDRESS]:PORT, :PORT or unix:PATH";
  }
  std::erase(config->tls_client_ca, "");  // an empty value is none, as for flags that are not lists
  if (config->tls_cert.empty() != config->tls_key.empty()) return "--tls-cert and --tls-key need each other";
  if (config->tls_cert.empty() && (!config->tls_client_ca.empty() || config->tls_client_auth != "none")) {
    return "--tls-client-ca and --tls-client-auth need --tls-cert";
  }
  if (config->tls_client_ca.empty() != (config->tls_client_auth == "none")) {
    return "--tls-client-ca needs --tls-client-auth optional or required, and the other way round";
  }
  if (config->policy.empty() && !config->token_file.empty()) return "--token-file needs --policy";
  if (config->answer_pool_bytes == 0) config->answer_pool_bytes = config->max_in_flight_bytes / 4;
  const std::string& prefix = config->shared_memory_prefix;
  if (!prefix.empty() && (prefix.size() < 2 || prefix[0] != '/' || prefix.find('/', 1) != std::string::npos)) {
    return "--shared-memory-prefix (" + prefix + ") must be a slash and at least one other character, such as /posenc-";
  }
  if (!prefix.empty() && config->shared_memory_socket.empty()) {
    return "--shared-memory-prefix needs --shared-memory-socket";
  }
  const std::string& inference_prefix = config->inference_memory_prefix;
  if (!inference_prefix.empty() && (inference_prefix[0] != '/' || inference_prefix.find('/', 1) != std::string::npos)) {
    return "--inference-memory-prefix (" + inference_prefix + ") must begin with a slash and have no other one";
  }
  if (config->model_repository.empty() && !config->model_name.empty()) return "--model-name needs --model-repository";
  const int64_t least_quota = 3 * config->max_in_flight_bytes;
  if (config->memory_quota_bytes == 0) config->memory_quota_bytes = least_quota;
  if (config->memory_quota_bytes < least_quota) {
    // With a smaller quota gRPC kills admitted calls. Its buffers also hold bytes that are not charged yet: a stream's
    // next chunk, beside the current one, which is charged.
    return "--memory-quota-bytes (" + std::to_string(config->memory_quota_bytes) +
           ") is less than three times --max-in-flight-bytes (" + std::to_string(config->max_in_flight_bytes) + ")";
  }
  return "";
}

std::vector<std::pair<std::string, std::string>> Describe(const Config& config) {
  std::vector<std::pair<std::string, std::string>> settings;
  VisitSettings(config, [&settings](const char*, const char* flag, const auto& member, const auto&, const char*) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(member)>>) {
      settings.emplace_back(flag + 2, std::to_string(member));
    } else if constexpr (std::is_same_v<std::decay_t<decltype(member)>, std::vector<std::string>>) {
      settings.emplace_back(flag + 2, CLI::detail::join(member, ","));
    } else {
      settings.emplace_back(flag + 2, member);
    }
  });
  return settings;
}

}  // namespace posenc::server
