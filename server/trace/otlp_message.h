// Spans as messages of OpenTelemetry's protocol.
#pragma once

#include <memory>

#include "absl/types/span.h"
#include "opentelemetry/proto/collector/trace/v1/trace_service.pb.h"
#include "server/trace/call_span.h"
#include "server/trace/trace_settings.h"

namespace posenc::server {

using ExportRequest = opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;

// `resource`: attributes of what sends the spans.
ExportRequest ToOtlp(absl::Span<const std::unique_ptr<CallSpan>> calls, const TraceSettings::Pairs& resource);

}  // namespace posenc::server
