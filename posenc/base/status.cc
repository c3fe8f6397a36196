#include "posenc/base/status.h"

#include <algorithm>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"

namespace posenc {
namespace {

constexpr char kPayload[] = "posenc/ErrorDetails";
// Names and lists of choices may come from a caller's file. With these limits, a message has at most 1024 bytes, and
// always says value and limit.
constexpr size_t kLongestField = 384, kLongestLimit = 512;
constexpr char kSeparator = '\0';

// Returns the size of the character that begins a text, which is not empty: 0 if it is not UTF-8, or a control
// character.
size_t SizeOfPrintable(std::string_view text) {
  constexpr uint32_t kLeast[] = {0, 0x20, 0xa0, 0x800, 0x10000};  // by size; above the control characters
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t size = lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf8 ? 4 : 0;
  if (size == 0 || size > text.size()) return 0;
  uint32_t code = size == 1 ? lead : lead & (0x7f >> size);
  for (const char c : text.substr(1, size - 1)) {
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) return 0;
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3f);
  }
  const bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < kLeast[size] || code == 0x7f || code > 0x10ffff || is_surrogate ? 0 : size;
}

// Returns the value, or what stands for an empty one.
std::string Shown(std::string_view reason, std::string value) {
  if (!value.empty()) return value;
  if (reason == "UNKNOWN_VALUE") return "\"\"";  // an empty string
  return std::string(reason == "MISSING" ? kAbsent : kPresent);
}

absl::Status Build(absl::StatusCode code, ErrorDetails details) {
  details.field = Quote(details.field, kLongestField);
  details.limit = Quote(details.limit, kLongestLimit);
  std::string message(details.field);
  const bool says_value = details.value != kAbsent && details.value != kPresent && !details.value.empty();
  if (says_value) message += (message.empty() ? "is " : ": is ") + details.value;
  if (!details.limit.empty()) message += (message.empty() ? "" : says_value ? "; " : ": ") + details.limit;
  if (!details.line.empty()) message += " (line " + details.line + ", column " + details.column + ")";
  return Restore(code, message, details);
}

}  // namespace

std::string Quote(std::string_view text, size_t limit) {
  std::string quoted;
  size_t kept = 0;  // bytes of `quoted` that leave room for "..."
  while (!text.empty() && quoted.size() <= limit) {
    if (quoted.size() + 3 <= limit) kept = quoted.size();
    const size_t size = SizeOfPrintable(text);
    quoted += size > 0 ? std::string(text.substr(0, size)) : absl::CHexEscape(std::string(1, text[0]));
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  if (quoted.size() <= limit) return quoted;
  return quoted.substr(0, kept) + "...";
}

absl::Status InvalidArgument(std::string_view reason, std::string_view field, std::string_view value,
                             std::string_view limit) {
  return Build(absl::StatusCode::kInvalidArgument,
               {std::string(reason), std::string(field), Shown(reason, Quote(value)), std::string(limit)});
}

absl::Status TooLarge(std::string_view field, std::string_view value, std::string_view limit) {
  return Build(absl::StatusCode::kResourceExhausted,
               {"TOO_LARGE", std::string(field), Shown("TOO_LARGE", Quote(value)), std::string(limit)});
}

absl::Status Unavailable(std::string_view reason, std::string_view limit) {
  return Build(absl::StatusCode::kUnavailable, {std::string(reason), "", "", std::string(limit)});
}

absl::Status WouldBlock() {
  return Build(absl::StatusCode::kFailedPrecondition, {"WOULD_BLOCK", "", "", "the plan is not cached"});
}

bool IsWouldBlock(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) && DetailsOf(status).reason == "WOULD_BLOCK";
}

ErrorDetails DetailsOf(const absl::Status& status) {
  ErrorDetails details;
  const auto payload = status.GetPayload(kPayload);
  if (!payload) {
    const bool stopped = absl::IsCancelled(status) || absl::IsDeadlineExceeded(status);
    details.reason = stopped ? "CANCELLED" : "INTERNAL";
    return details;
  }
  std::string* parts[] = {&details.reason, &details.field,  &details.value,   &details.limit,      &details.other_field,
                          &details.line,   &details.column, &details.operand, &details.byte_offset};
  const std::string text(*payload);
  size_t part = 0;
  for (char c : text) {
    if (c == kSeparator) {
      ++part;
    } else {
      *parts[part] += c;
    }
  }
  return details;
}

absl::Status Restore(absl::StatusCode code, std::string_view message, const ErrorDetails& details) {
  absl::Status status(code, std::string(message));
  std::string payload;
  for (const std::string* part : {&details.reason, &details.field, &details.value, &details.limit, &details.other_field,
                                  &details.line, &details.column, &details.operand, &details.byte_offset}) {
    if (part != &details.reason) payload += kSeparator;
    for (char c : *part) {
      if (c != kSeparator) payload += c;  // never in our own texts, but these may come from a peer
    }
  }
  status.SetPayload(kPayload, absl::Cord(payload));
  return status;
}

absl::Status ResumableAt(std::string_view operand, int64_t byte_offset, const absl::Status& status) {
  ErrorDetails details = DetailsOf(status);
  details.operand = operand;
  details.byte_offset = std::to_string(byte_offset);
  return Restore(status.code(), {status.message().data(), status.message().size()}, details);
}

absl::Status Within(std::string_view prefix, const absl::Status& status) {
  return Renamed(status, [prefix](const std::string& field) {
    const bool joined = field.empty() || field[0] == '[';
    return std::string(prefix) + (joined ? "" : ".") + field;
  });
}

absl::Status Renamed(const absl::Status& status, const std::function<std::string(const std::string&)>& rename) {
  if (status.ok() || !status.GetPayload(kPayload)) return status;
  ErrorDetails details = DetailsOf(status);
  details.field = rename(details.field);
  if (!details.other_field.empty()) details.other_field = rename(details.other_field);
  return Build(status.code(), details);
}

absl::Status Against(std::string_view other_field, const absl::Status& status) {
  if (status.ok()) return status;
  ErrorDetails details = DetailsOf(status);
  details.other_field = other_field;
  return Restore(status.code(), {status.message().data(), status.message().size()}, details);
}

absl::Status AtPlace(int64_t line, int64_t column, const absl::Status& status) {
  if (status.ok()) return status;
  ErrorDetails details = DetailsOf(status);
  details.line = std::to_string(line);
  details.column = std::to_string(column);
  return Build(status.code(), details);
}

}  // namespace posenc
