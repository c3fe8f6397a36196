// W3C Trace Context (https://www.w3.org/TR/trace-context/): the header "traceparent".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace posenc::server {

inline constexpr char kTraceparent[] = "traceparent";
inline constexpr char kTracestate[] = "tracestate";

struct TraceContext {
  std::array<uint8_t, 16> trace_id{};
  std::array<uint8_t, 8> span_id{};
  uint8_t flags = 0;

  bool is_sampled() const { return (flags & 1) != 0; }
};

// Reads "00-TRACE_ID-PARENT_ID-FLAGS" in lower-case hex; what later versions add behind it is ignored. nullopt if it is
// malformed, or an id is zero.
std::optional<TraceContext> ParseTraceparent(std::string_view text);

// Bytes in lower-case hex.
std::string ToHex(const uint8_t* bytes, size_t size);

}  // namespace posenc::server
