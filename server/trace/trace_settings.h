// Settings of traces: --otlp-endpoint and the environment variables of OpenTelemetry's SDKs.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/trace/sampler.h"

namespace posenc::server {

struct TraceSettings {
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  std::string target;  // of gRPC, "host:port"
  bool is_secure = false;
  std::string root_certificates, client_key, client_certificate;  // PEM; empty: the system's roots, no certificate
  Pairs headers;                                                  // of each export
  std::chrono::milliseconds timeout{10'000};                      // of an export
  bool is_compressed = false;                                     // with gzip
  Sampler sampler;
  Pairs resource;                                   // attributes that say what sends the spans
  std::chrono::milliseconds schedule_delay{5'000};  // between exports of batches that are not full
  size_t max_queue_spans = 2048;                    // further ones are dropped
  size_t max_batch_spans = 512;
};

// Returns a variable's value, or null.
using Environment = std::function<const char*(const char* name)>;

// Reads the settings. nullopt: nothing is traced, because neither the flag nor an endpoint's variable is given, or a
// variable says so (OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER). `endpoint`: --otlp-endpoint, before the variables; empty:
// theirs. Returns INVALID_ARGUMENT naming the flag or the variable.
absl::StatusOr<std::optional<TraceSettings>> ReadTraceSettings(const std::string& endpoint,
                                                               const Environment& environment);

// Names of set variables that begin with OTEL_ and mean nothing here.
std::vector<std::string> UnusedTraceVariables(const char* const* environment);

}  // namespace posenc::server
