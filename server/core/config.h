// The server's settings: each is a flag, and an environment variable of the same name (--max-heads is
// POSENC_SERVER_MAX_HEADS). A flag wins over the environment.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "posenc/base/limits.h"

namespace posenc::server {

struct Config {
  std::vector<std::string> listen = {"127.0.0.1:50051"};
  std::vector<std::string> http_listen;  // empty: no Open Inference Protocol over HTTP
  std::string port_file;
  std::string metrics_listen;  // empty: no metrics
  std::string health_listen;   // empty: no probes over HTTP
  std::string tls_cert;        // empty: no TLS
  std::string tls_key;
  std::vector<std::string> tls_client_ca;
  std::string tls_client_auth = "none";
  std::string policy;                             // empty: everybody may call
  std::string token_file;                         // empty: no tokens
  std::string trusted_proxy, http_trusted_proxy;  // empty: none
  std::string otlp_endpoint;                      // empty: OpenTelemetry's variables
  int64_t threads = 0;                            // 0: from the cgroup's quota and the affinity mask
  int64_t io_threads = 0;                         // 0: half the CPUs, from 1 to 16
  std::string device_plugin;                      // empty: CPU only
  std::string reflection = "on";
  std::string model_repository;  // empty: no models by file
  std::string model_name;        // of a repository that is one model; empty: the folder's
  std::string model_control = "off";
  int64_t plan_cache_bytes = int64_t{16} << 20;
  int64_t table_cache_bytes = int64_t{32} << 20;
  int64_t answer_pool_bytes = 0;  // 0: a quarter of max_in_flight_bytes

  Limits limits;
  int64_t max_in_flight_bytes = 0;  // 0: a quarter of the memory, at most 1 GiB
  int64_t max_in_flight_requests = 1024;
  int64_t max_call_cost = 2'000'000;
  int64_t retry_pushback_ms = 100;

  std::string shared_memory_socket;     // empty: shared memory is off
  std::string shared_memory_prefix;     // empty: no registration by name
  std::string inference_memory_prefix;  // empty: no registration by the Open Inference Protocol
  int64_t max_regions = 256;
  int64_t max_region_bytes = int64_t{4} << 30;

  int64_t max_connections = 0;           // 0: a part of the descriptors, at most kMostConnections
  int64_t max_connections_per_peer = 0;  // 0: 64 for each of io_threads, at most half of max_connections
  int64_t handshake_timeout_s = 20;
  int64_t max_handshakes_per_second = 24;
  int64_t max_concurrent_streams = 32;
  int64_t max_connection_age_s = 300;
  int64_t max_connection_age_grace_s = 30;
  int64_t keepalive_time_s = 60;
  int64_t keepalive_timeout_s = 20;
  int64_t min_ping_interval_s = 10;
  int64_t max_metadata_bytes = 16384;
  int64_t send_timeout_s = 60;
  int64_t receive_timeout_s = 60;
  int64_t max_call_s = 60;
  int64_t max_stream_s = 600;
  int64_t stuck_thread_s = 120;
  int64_t memory_quota_bytes = 0;  // 0: three times max_in_flight_bytes

  int64_t drain_notice_s = 0;
  int64_t drain_timeout_s = 30;

  std::string log_format = "text";
  std::string log_level = "info";
  int64_t max_call_log_lines = 100;  // per second; 0: unlimited
};

// Machine properties from which some defaults are computed.
struct Machine {
  int cpus;
  int64_t memory_bytes;  // 0: unknown
  int64_t descriptors = std::numeric_limits<int32_t>::max();
  int64_t virtual_memory_bytes = std::numeric_limits<int64_t>::max();  // limit of the process (ulimit -v)
};
Machine ThisMachine();

// Either a complete and consistent config, or a text to print (help or an error) and the exit status.
struct ParsedArguments {
  std::optional<Config> config;
  // Environment variables POSENC_SERVER_... that are no setting, most likely misspelt. Excludes the variables that
  // Kubernetes sets for a service of this name (POSENC_SERVER_PORT, POSENC_SERVER_SERVICE_HOST, ...).
  std::vector<std::string> unknown_variables;
  std::string text;
  int exit_status = 0;
};

class ArgumentParser {
 public:
  ArgumentParser();
  ~ArgumentParser();
  // May be called again: each command line starts from the defaults.
  ParsedArguments Parse(int argc, const char* const* argv, const Machine& machine);

 private:
  struct Flags;
  const std::unique_ptr<Flags> flags_;
};

// Replaces zeros by defaults for the machine, and lowers what a limit of virtual memory does not allow. Returns an
// error text if settings contradict each other, else "".
std::string Complete(const Machine& machine, Config* config);

// Every setting as (flag without dashes, value), for the log.
std::vector<std::pair<std::string, std::string>> Describe(const Config& config);

}  // namespace posenc::server
