// Sends spans to a collector by OTLP over gRPC.
#pragma once

#include <memory>

#include "server/trace/span_exporter.h"
#include "server/trace/trace_settings.h"

namespace posenc::server {

std::unique_ptr<SpanExporter> MakeOtlpExporter(const TraceSettings& settings);

}  // namespace posenc::server
