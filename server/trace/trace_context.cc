#include "server/trace/trace_context.h"

#include <algorithm>

#include "absl/strings/escaping.h"

namespace posenc::server {
namespace {

constexpr size_t kSize = 55;  // of version 00
constexpr size_t kTraceId = 3, kSpanId = 36, kFlags = 53;

int DigitOf(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

// Returns false if the text is not hex in lower case.
bool ReadHex(std::string_view text, uint8_t* to) {
  for (size_t n = 0; n < text.size(); n += 2) {
    const int high = DigitOf(text[n]), low = DigitOf(text[n + 1]);
    if (high < 0 || low < 0) return false;
    to[n / 2] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

bool IsZero(const uint8_t* bytes, size_t size) {
  return std::all_of(bytes, bytes + size, [](uint8_t byte) { return byte == 0; });
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  if (text.size() < kSize) return std::nullopt;
  uint8_t version = 0;
  TraceContext context;
  const bool is_hex =
      ReadHex(text.substr(0, 2), &version) && ReadHex(text.substr(kTraceId, 32), context.trace_id.data()) &&
      ReadHex(text.substr(kSpanId, 16), context.span_id.data()) && ReadHex(text.substr(kFlags, 2), &context.flags);
  const bool has_dashes = text[kTraceId - 1] == '-' && text[kSpanId - 1] == '-' && text[kFlags - 1] == '-';
  if (!is_hex || !has_dashes || version == 0xff) return std::nullopt;
  if (text.size() > kSize && (version == 0 || text[kSize] != '-')) return std::nullopt;
  if (IsZero(context.trace_id.data(), 16) || IsZero(context.span_id.data(), 8)) return std::nullopt;
  return context;
}

std::string ToHex(const uint8_t* bytes, size_t size) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes), size});
}

}  // namespace posenc::server
