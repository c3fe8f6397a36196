#include "posenc/base/status.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"

namespace posenc {
namespace {

constexpr char kPayload[] = "posenc/ErrorDetails";
constexpr size_t kLongestMessage = 1024;
constexpr size_t kLongestLimit = 512;  // lists of choices may come from a caller's file
constexpr char kSeparator = '\0';

// Truncates to at most `size` bytes, at a UTF-8 character boundary.
void Cut(size_t size, std::string& text) {
  if (text.size() <= size) return;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  text.resize(size);
}

// Returns the value, or what stands for an empty one.
std::string Shown(std::string_view reason, std::string value) {
  if (!value.empty()) return value;
  if (reason == "UNKNOWN_VALUE") return "\"\"";  // an empty string
  return std::string(reason == "MISSING" ? kAbsent : kPresent);
}

absl::Status Build(absl::StatusCode code, ErrorDetails details) {
  Cut(kLongestLimit, details.limit);
  std::string message(details.field);
  const bool says_value = details.value != kAbsent && details.value != kPresent && !details.value.empty();
  if (says_value) message += (message.empty() ? "is " : ": is ") + details.value;
  if (!details.limit.empty()) message += (message.empty() ? "" : says_value ? "; " : ": ") + details.limit;
  if (!details.line.empty()) message += " (line " + details.line + ", column " + details.column + ")";
  Cut(kLongestMessage, message);
  return Restore(code, message, details);
}

}  // namespace

std::string Quote(std::string_view text, size_t limit) {
  std::string quoted;
  size_t kept = 0;  // bytes of `quoted` that leave room for "..."
  for (const char c : text.substr(0, limit + 1)) {
    const bool starts_character = (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    if (starts_character && quoted.size() + 3 <= limit) kept = quoted.size();
    quoted += absl::ascii_iscntrl(static_cast<unsigned char>(c)) ? absl::CEscape(std::string(1, c)) : std::string(1, c);
  }
  if (text.size() <= limit && quoted.size() <= limit) return quoted;
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
