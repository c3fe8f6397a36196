#include "tools/posenc/session.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "posenc/base/cgroup.h"
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

// Returns the free memory in bytes, within the cgroup's limit; infinity if it cannot be read.
double FreeMemory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    double kibibytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %lf kB", &kibibytes) == 1) {
      return std::min(kibibytes * 1024, static_cast<double>(AvailableMemory()));
    }
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace

Backend& Session::backend() {
  if (!unsaid_.empty() && !json()) std::fprintf(stderr, "posenc: assumed %s\n", unsaid_.c_str());
  unsaid_.clear();
  if (backend_ == nullptr) backend_ = MakeBackend(flags_);
  return *backend_;
}

void Session::Assume(const std::string& flag, const std::string& value, const std::string& why) {
  assumed_.emplace_back(absl::StrReplaceAll(absl::StripPrefix(flag, "--"), {{"-", "_"}}), value);
  absl::StrAppend(&unsaid_, unsaid_.empty() ? "" : ", ", flag, " ", value);
  if (!why.empty()) absl::StrAppend(&unsaid_, " (", why, ")");
}

absl::Status Session::AllowWriting(const std::string& path, uint64_t bytes) const {
  std::error_code unknown;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const bool held = IsStream(path);  // in a temporary file first
  const auto space = std::filesystem::space(held             ? std::filesystem::temp_directory_path(unknown)
                                            : folder.empty() ? "."
                                                             : folder,
                                            unknown);
  if (unknown) return absl::OkStatus();
  return Allow(path + ": the result", static_cast<double>(bytes), static_cast<double>(space.available), "there");
}

absl::Status Session::AllowMemory(double bytes) const {
  return Allow("the result", bytes, FreeMemory(), "in memory, where it is computed");
}

absl::Status Session::Allow(const std::string& what, double bytes, double free, const char* where) const {
  constexpr double kGigabyte = 1e9;
  if (flags_.yes || bytes <= free / 10) return absl::OkStatus();
  const std::string large =
      absl::StrFormat("%s has %.1f GB, and %.1f GB are free %s", what, bytes / kGigabyte, free / kGigabyte, where);
  if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) return UsageError(large + "; give --yes to go on");
  std::fprintf(stderr, "posenc: %s. Go on? [y/N] ", large.c_str());
  const int answer = std::getchar();
  return answer == 'y' || answer == 'Y' ? absl::OkStatus() : UsageError("stopped");
}

absl::Status UsageError(const std::string& message) {
  absl::Status status = absl::InvalidArgumentError(message);
  status.SetPayload(kUsageMark, absl::Cord());
  return status;
}

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsageMark).has_value(); }

}  // namespace posenc::command
