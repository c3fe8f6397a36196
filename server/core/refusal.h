// Errors with other codes than INVALID_ARGUMENT.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "posenc/base/status.h"

namespace posenc::server {

// Returns InvalidArgument(reason, field, value, limit) with another code.
inline absl::Status Refusal(absl::StatusCode code, std::string_view reason, std::string_view field,
                            std::string_view value, std::string_view limit) {
  const absl::Status status = InvalidArgument(reason, field, value, limit);
  return Restore(code, {status.message().data(), status.message().size()}, DetailsOf(status));
}

inline absl::Status NotFound(std::string_view field, std::string_view value, std::string_view limit) {
  return Refusal(absl::StatusCode::kNotFound, "NOT_FOUND", field, value, limit);
}

}  // namespace posenc::server
