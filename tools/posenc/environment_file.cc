#include "tools/posenc/environment_file.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "posenc/base/input_file.h"
#include "posenc/base/status.h"

namespace posenc::command {
namespace {

constexpr uint64_t kMostBytes = 64 << 10;

// Returns "" if neither variable is set.
std::string Path() {
  constexpr char kName[] = "posenc/environment";
  if (const char* folder = std::getenv("XDG_CONFIG_HOME"); folder != nullptr && *folder == '/') {
    return absl::StrCat(folder, "/", kName);
  }
  const char* home = std::getenv("HOME");
  return home == nullptr || *home == '\0' ? "" : absl::StrCat(home, "/.config/", kName);
}

}  // namespace

absl::Status ReadEnvironmentFile() {
  const std::string path = Path();
  if (path.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> text = ReadFile(path, kMostBytes);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  if (!text.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", text.status().message()));
  int number = 0;
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::pair<std::string, std::string> variable = absl::StrSplit(line, absl::MaxSplits('=', 1));
    const bool named = absl::StartsWith(variable.first, "POSENC_") &&
                       std::all_of(variable.first.begin(), variable.first.end(), [](unsigned char c) {
                         return absl::ascii_isupper(c) || absl::ascii_isdigit(c) || c == '_';
                       });
    if (!named || !absl::StrContains(line, '=')) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": line ", number, ": must be POSENC_NAME=VALUE, not ", Quote(std::string(line))));
    }
    setenv(variable.first.c_str(), variable.second.c_str(), 0);
  }
  return absl::OkStatus();
}

}  // namespace posenc::command
