// Which calls are traced: the samplers of OpenTelemetry's SDKs (OTEL_TRACES_SAMPLER).
#pragma once

#include <array>
#include <cstdint>

#include "server/trace/trace_context.h"

namespace posenc::server {

struct Sampler {
  bool is_parent_based = true;  // a call with a parent is traced if its parent is
  double ratio = 1;             // of all other calls, 0 to 1

  // `parent`: null if the call has none. The rule for trace ids is that of OpenTelemetry's SDK for Go, which compares
  // the last 8 bytes.
  bool Samples(const TraceContext* parent, const std::array<uint8_t, 16>& trace_id) const {
    if (is_parent_based && parent != nullptr) return parent->is_sampled();
    uint64_t low = 0;
    for (size_t n = 8; n < 16; ++n) low = low << 8 | trace_id[n];
    return ratio >= 1 || low >> 1 < static_cast<uint64_t>(ratio * 0x1p63);
  }
};

}  // namespace posenc::server
