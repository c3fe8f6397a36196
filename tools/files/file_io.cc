#include "tools/files/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "posenc/base/cgroup.h"
#include "posenc/base/input_file.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

constexpr int kClosed = -1;

absl::Status SystemError(const std::string& path, const char* what) {
  return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot ", what));
}

}  // namespace

bool IsStream(const std::string& path) {
  struct stat information;
  return path == "-" ||
         (stat(path.c_str(), &information) == 0 && !S_ISREG(information.st_mode) && !S_ISDIR(information.st_mode));
}

uint64_t FreeMemory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    unsigned long long kibibytes = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kibibytes) == 1) {
      return std::min<uint64_t>(kibibytes * 1024, static_cast<uint64_t>(AvailableMemory()));
    }
  }
  return std::numeric_limits<uint64_t>::max();
}

absl::StatusOr<OutputFile> OutputFile::Create(const std::string& path) {
  if (IsStream(path)) {
    std::error_code unknown;
    const std::string folder = std::filesystem::temp_directory_path(unknown);  // "" if there is none
    const int held = open(folder.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    if (held < 0) return SystemError(path, "create a temporary file in TMPDIR or /tmp");
    return OutputFile(path, "", held, /*named=*/false);
  }
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    return absl::InvalidArgumentError(path + ": is a folder; give the name of a file");
  }
  std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  // An O_TMPFILE file has no name and disappears with the process, but not every file system supports it. mkstemp()
  // would ignore the user's umask for the permissions.
  const std::string directory = std::filesystem::path(path).parent_path().string();
  int descriptor = open(directory.empty() ? "." : directory.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  if (descriptor >= 0) return OutputFile(path, std::move(temporary), descriptor, /*named=*/false);
  descriptor = open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return SystemError(path, "create");
  return OutputFile(path, std::move(temporary), descriptor, /*named=*/true);
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, kClosed)),
      named_(other.named_) {}

OutputFile::~OutputFile() {
  if (descriptor_ == kClosed) return;
  close(descriptor_);
  if (named_) unlink(temporary_.c_str());
}

absl::Status OutputFile::Write(uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return SystemError(path_, "write");
    bytes.remove_prefix(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return absl::OkStatus();
}

absl::Status OutputFile::CopyToStream() {
  const int stream = path_ == "-" ? dup(STDOUT_FILENO) : open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  if (stream < 0) return SystemError(path_, "open");
  absl::Status status;
  char buffer[1 << 16];
  off_t offset = 0;
  for (ssize_t got = 0; status.ok() && (got = pread(descriptor_, buffer, sizeof buffer, offset)) != 0; offset += got) {
    if (got < 0) status = SystemError(path_, "read the temporary file");
    for (ssize_t done = 0; status.ok() && done < got;) {
      const ssize_t put = write(stream, buffer + done, static_cast<size_t>(got - done));
      if (put < 0 && errno != EINTR) status = SystemError(path_ == "-" ? "standard output" : path_, "write");
      if (put > 0) done += put;
    }
  }
  if (close(stream) != 0 && status.ok()) status = SystemError(path_, "write");
  return status;
}

absl::Status OutputFile::Commit() {
  if (IsStream(path_)) return CopyToStream();
  if (!named_) {
    // linkat() cannot replace a file, so link under the temporary name; rename() then replaces the old file.
    const std::string self = absl::StrCat("/proc/self/fd/", descriptor_);
    if (linkat(AT_FDCWD, self.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return SystemError(path_, "create");
    }
    named_ = true;
  }
  const int descriptor = std::exchange(descriptor_, kClosed);
  absl::Status status;
  if (close(descriptor) != 0) {
    status = SystemError(temporary_, "write");
  } else if (rename(temporary_.c_str(), path_.c_str()) != 0) {
    status = SystemError(path_, "replace");
  }
  if (!status.ok()) unlink(temporary_.c_str());
  return status;
}

absl::StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t limit) {
  absl::StatusOr<std::string> bytes = ReadFile(path, limit, Streams::kRead);
  if (bytes.ok()) return bytes;
  return absl::Status(bytes.status().code(),
                      absl::StrCat(path == "-" ? "standard input" : path, ": ", bytes.status().message()));
}

absl::Status WriteWholeFile(const std::string& path, std::string_view bytes) {
  POSENC_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  POSENC_RETURN_IF_ERROR(file.Write(0, bytes));
  return file.Commit();
}

}  // namespace posenc
