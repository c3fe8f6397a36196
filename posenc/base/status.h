// Errors that a caller can cause: a status whose message names field, value and limit. The payload carries these three
// and a machine-readable reason for the RPC layer. Reasons and details are listed in proto/posenc/v1/error.proto.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace posenc {

struct ErrorDetails {
  std::string reason;
  std::string field;
  std::string value;
  std::string limit;
  // The second field where two contradict each other. Empty if there is one only.
  std::string other_field = {};
  // Place in a config.json's text at which its parser stopped, from 1. Empty if the error is not about a place.
  std::string line = {};
  std::string column = {};
  // Resume point of a stream: the operand, and the offset of its first byte that was not answered. Empty if absent.
  std::string operand = {};
  std::string byte_offset = {};
};

// INVALID_ARGUMENT with the message "FIELD: is VALUE; LIMIT", empty parts left out: "rotary_dim: is 63; must be even".
// `value` is escaped and cut to 64 bytes; a caller's text in `field` must have gone through Quote(). An empty value
// stays out of the message; the details then hold kAbsent for MISSING, and else kPresent.
absl::Status InvalidArgument(std::string_view reason, std::string_view field, std::string_view value,
                             std::string_view limit);
inline constexpr std::string_view kAbsent = "absent", kPresent = "present";
// The field of errors about the whole message, which no path names.
inline constexpr std::string_view kWholeRequest = "request";
// RESOURCE_EXHAUSTED, reason TOO_LARGE: the request exceeds a limit, and a retry cannot succeed.
absl::Status TooLarge(std::string_view field, std::string_view value, std::string_view limit);
// UNAVAILABLE because of overload, a quota, a drain or lack of memory.
absl::Status Unavailable(std::string_view reason, std::string_view limit);

// Returned with PlanSource::kCacheOnly if no cached plan exists: the work belongs on another thread. Internal: API
// callers never see it.
absl::Status WouldBlock();
bool IsWouldBlock(const absl::Status& status);

// Returns the details of a status made by this file. For any other: no field, and reason CANCELLED (for CANCELLED and
// DEADLINE_EXCEEDED) or INTERNAL.
ErrorDetails DetailsOf(const absl::Status& status);

// Returns a status with this message, unchanged, and these details. A client rebuilds a received error with it.
absl::Status Restore(absl::StatusCode code, std::string_view message, const ErrorDetails& details);

// Returns the status with "PREFIX." prepended to its fields, for errors of a nested message. Others are unchanged.
absl::Status Within(std::string_view prefix, const absl::Status& status);

// Returns the status with each of its fields renamed. Statuses without details are unchanged.
absl::Status Renamed(const absl::Status& status, const std::function<std::string(const std::string&)>& rename);

// Returns the status with the second of two fields that contradict each other. Its limit should name that field's
// value.
absl::Status Against(std::string_view other_field, const absl::Status& status);

// Returns the status with a place in a text, both from 1, in its details and at the end of its message.
absl::Status AtPlace(int64_t line, int64_t column, const absl::Status& status);

// Returns the status with the point at which its stream can be resumed. `byte_offset` is in bytes of the operand.
absl::Status ResumableAt(std::string_view operand, int64_t byte_offset, const absl::Status& status);

// Makes a caller's text safe for messages: escapes control characters; at most `limit` bytes, with "..." if truncated.
std::string Quote(std::string_view text, size_t limit = 64);

}  // namespace posenc

#define POSENC_RETURN_IF_ERROR(expression)                                  \
  do {                                                                      \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

#define POSENC_CONCAT_INNER(a, b) a##b
#define POSENC_CONCAT(a, b) POSENC_CONCAT_INNER(a, b)
#define POSENC_ASSIGN_OR_RETURN(declaration, expression) \
  POSENC_ASSIGN_OR_RETURN_IMPL(POSENC_CONCAT(result_, __LINE__), declaration, expression)
#define POSENC_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                         \
  if (!result.ok()) return std::move(result).status();                \
  declaration = *std::move(result)
