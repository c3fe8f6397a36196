#include "tools/posenc/session.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/cord.h"
#include "absl/strings/str_format.h"
#include "posenc/client/client.h"
#include "posenc/in_process/in_process.h"
#include "tools/files/file_io.h"

namespace posenc::command {
namespace {

constexpr char kUsageMark[] = "posenc/usage";

std::unique_ptr<Backend> MakeBackend(const GlobalFlags& flags) {
  const auto timeout = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(flags.timeout_seconds));
  if (!flags.server.empty()) {
    ClientOptions options;
    options.address = flags.server;
    options.tls = flags.tls;
    if (flags.timeout_seconds > 0) options.timeout = timeout;
    return std::make_unique<Client>(std::move(options));
  }
  InProcessOptions options = WholeMachine();
  if (flags.timeout_seconds > 0) options.timeout = timeout;
  return std::make_unique<InProcess>(options);
}

}  // namespace

Backend& Session::backend() {
  if (backend_ == nullptr) backend_ = MakeBackend(flags_);
  return *backend_;
}

absl::Status Session::AllowWriting(const std::string& path, uint64_t bytes) const {
  std::error_code unknown;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const bool held = IsStream(path);  // in a temporary file first
  const auto space = std::filesystem::space(held             ? std::filesystem::temp_directory_path(unknown)
                                            : folder.empty() ? "."
                                                             : folder,
                                            unknown);
  constexpr double kGigabyte = 1e9;
  if (flags_.yes || unknown || bytes <= space.available / 10) return absl::OkStatus();
  const std::string large =
      absl::StrFormat("%s: the result has %.1f GB, and %.1f GB are free there", path,
                      static_cast<double>(bytes) / kGigabyte, static_cast<double>(space.available) / kGigabyte);
  if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) return UsageError(large + "; give --yes to write it");
  std::fprintf(stderr, "posenc: %s. Write it? [y/N] ", large.c_str());
  const int answer = std::getchar();
  return answer == 'y' || answer == 'Y' ? absl::OkStatus() : UsageError(path + ": not written");
}

absl::Status UsageError(const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsageMark, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsageMark).has_value(); }

}  // namespace posenc::command
