#include "tools/posenc/session.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "tools/files/file_io.h"
#include "tools/posenc/connection.h"

namespace posenc::command {
namespace {

constexpr char kUsageMark[] = "posenc/usage";
constexpr char kNoMark[] = "posenc/no";

absl::Status Marked(absl::Status status, const char* mark) {
  status.SetPayload(mark, absl::Cord());
  return status;
}

// Formats a number of bytes with one decimal: "1.5 GB".
std::string Amount(double bytes) {
  const char* const units[] = {"kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  bytes /= 1e3;
  for (; bytes >= 1e3 && unit + 1 < std::size(units); ++unit) bytes /= 1e3;
  return absl::StrFormat("%.1f %s", bytes, units[unit]);
}

}  // namespace

Backend& Session::backend() {
  if (!unsaid_.empty() && !json()) std::fprintf(stderr, "posenc: assumed %s\n", unsaid_.c_str());
  unsaid_.clear();
  if (backend_ == nullptr) backend_ = Connect(flags_);
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
  return Allow("the result", bytes, static_cast<double>(FreeMemory()), "in memory, where it is computed");
}

absl::Status Session::Allow(const std::string& what, double bytes, double free, const char* where) const {
  if (flags_.yes || bytes <= free / 10) return absl::OkStatus();
  const std::string large = absl::StrCat(what, " has ", Amount(bytes), ", and ", Amount(free), " are free ", where);
  if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) return UsageError(large + "; give --yes to go on");
  std::fprintf(stderr, "posenc: %s. Go on? [y/N] ", large.c_str());
  const int answer = std::getchar();
  return answer == 'y' || answer == 'Y' ? absl::OkStatus() : UsageError("stopped");
}

absl::Status UsageError(const std::string& message) { return Marked(absl::InvalidArgumentError(message), kUsageMark); }

bool IsUsageError(const absl::Status& status) { return status.GetPayload(kUsageMark).has_value(); }

absl::Status AnswerIsNo(const std::string& message) { return Marked(absl::FailedPreconditionError(message), kNoMark); }

int ExitCodeOf(const absl::Status& error) {
  return IsUsageError(error) ? kUsage : error.GetPayload(kNoMark).has_value() ? kNo : kFailed;
}

}  // namespace posenc::command
