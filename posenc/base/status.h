// Errors that a caller can cause: a status whose message names field, value and limit, with the same three (and a
// reason that programs test) attached for the edge to pass on. Reasons are listed in proto/posenc/v1/error.proto.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace posenc {

struct ErrorDetails {
  std::string reason;
  std::string field;
  std::string value;
  std::string limit;
  // Of a stream that can be resumed: the first byte that was not answered, and of which operand.
  std::string operand = {};
  std::string byte_offset = {};
};

// The message reads: "FIELD: VALUE: LIMIT" with empty parts left out; e.g. "rotary_dim: is 63, must be even".
// `value` is escaped and cut to 64 bytes; a caller's text in `field` must have gone through Quote().
absl::Status InvalidArgument(std::string_view reason, std::string_view field, std::string_view value,
                             std::string_view limit);
// This request can never fit.
absl::Status TooLarge(std::string_view field, std::string_view value, std::string_view limit);
// Overload or drain; nothing was started. Not for the library: the server's admission uses it.
absl::Status Unavailable(std::string_view reason, std::string_view limit);

// Limits.plans_at_hand, and there is none. Never a caller's: it says that computing belongs on another thread.
absl::Status NotAtHand();
bool IsNotAtHand(const absl::Status& status);

// The details of a status made above; of any other, reason INTERNAL (or CANCELLED) and no field.
ErrorDetails DetailsOf(const absl::Status& status);

// A status with this message, as it stands, and these details: what a client makes of an error that came over a wire.
absl::Status Restore(absl::StatusCode code, std::string_view message, const ErrorDetails& details);

// The status with "PREFIX." put before its field, for errors that come out of a nested message.
absl::Status Within(std::string_view prefix, const absl::Status& status);

// The status with where its stream can be resumed.
absl::Status ResumableAt(std::string_view operand, int64_t byte_offset, const absl::Status& status);

// Text of a caller's, safe for a log or a message: C-escaped, at most `limit` bytes, with "..." where cut.
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
