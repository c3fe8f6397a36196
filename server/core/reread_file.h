// Files that the server reads again while it runs: certificates, keys, policy and tokens.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/status/status.h"
#include "posenc/base/status.h"

namespace posenc::server {

// Returns INVALID_ARGUMENT naming `flag` for a pipe or another file that can be read only once: the next open() would
// wait for ever. OK for a path without a file.
inline absl::Status CheckReadableAgain(std::string_view flag, const std::string& path) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  if (error || type == std::filesystem::file_type::regular || type == std::filesystem::file_type::not_found) {
    return absl::OkStatus();
  }
  return InvalidArgument("UNSUPPORTED", flag, path, "must be a regular file, because it is read again when it changes");
}

}  // namespace posenc::server
