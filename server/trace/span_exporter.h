// Where spans go. A build with OpenTelemetry's own library can take its exporter in place of OtlpExporter.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "server/trace/call_span.h"

namespace posenc::server {

class SpanExporter {
 public:
  enum class Outcome {
    kAccepted,
    kRejected,    // the collector does not want it
    kUnavailable  // a later try may succeed
  };
  struct Result {
    Outcome outcome = Outcome::kAccepted;
    int64_t rejected_spans = 0;  // of a batch that was accepted
    std::string error;
  };
  virtual ~SpanExporter() = default;
  // Blocks until the calls' spans are sent, for at most this time.
  virtual Result Export(absl::Span<const std::unique_ptr<CallSpan>> calls, std::chrono::milliseconds time) = 0;
  // Ends an export that runs. Thread-safe.
  virtual void Cancel() = 0;
};

}  // namespace posenc::server
