#include "posenc/base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

constexpr int kClosed = -1;
constexpr uint64_t kBytesOfARead = 1 << 20;

absl::Status Failed(const char* what, int error) {
  const std::string message = absl::StrCat("cannot ", what, ": ", std::generic_category().message(error));
  if (error == EMFILE || error == ENFILE || error == ENOMEM) return absl::UnavailableError(message);
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  return absl::PermissionDeniedError(message);
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int get() const { return number_; }

 private:
  const int number_;
};

absl::Status CheckKind(mode_t mode, Streams streams) {
  if (S_ISREG(mode)) return absl::OkStatus();
  if (S_ISDIR(mode)) return absl::InvalidArgumentError("is a folder; give a file");
  if (streams == Streams::kRefused) return absl::InvalidArgumentError("must be a regular file");
  if (S_ISFIFO(mode) || S_ISSOCK(mode) || S_ISCHR(mode)) return absl::OkStatus();
  return absl::InvalidArgumentError("is a device; give a file or a pipe");
}

// Opens the file that `found` stands for, whatever has that path by now.
int OpenFound(const Descriptor& found) {
  return open(absl::StrCat("/proc/self/fd/", found.get()).c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
}

}  // namespace

absl::StatusOr<InputFile> InputFile::Open(const std::string& path, uint64_t limit, Streams streams) {
  const bool is_input = path == "-" && streams == Streams::kRead;
  int descriptor = kClosed;
  if (is_input) {
    descriptor = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
  } else {
    // open() of a pipe without a writer waits, and the file may be replaced by one after a check of its path. O_PATH
    // never waits. O_NONBLOCK would fail for a file with a lease.
    const Descriptor found(open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat information;
    if (found.get() < 0 || fstat(found.get(), &information) != 0) return Failed("open", errno);
    POSENC_RETURN_IF_ERROR(CheckKind(information.st_mode, streams));
    descriptor = OpenFound(found);
  }
  if (descriptor < 0) return Failed("open", errno);
  InputFile file(is_input ? "standard input" : path, descriptor, limit);
  struct stat information;
  if (fstat(descriptor, &information) != 0) return Failed("read", errno);
  if (S_ISREG(information.st_mode) && !is_input) {
    file.size_ = static_cast<uint64_t>(information.st_size);
    return file;
  }
  if (S_ISDIR(information.st_mode)) return absl::InvalidArgumentError("is a folder; give a file");
  // Standard input often is /dev/null. Other devices, such as /dev/zero, have no end.
  if (!is_input && S_ISCHR(information.st_mode) && isatty(descriptor) == 0) {
    return absl::InvalidArgumentError("is a device; give a file or a pipe");
  }
  POSENC_RETURN_IF_ERROR(file.ReadStream());
  return file;
}

absl::Status InputFile::ReadStream() {
  char buffer[1 << 16];
  for (ssize_t got = 0; (got = read(descriptor_, buffer, sizeof buffer)) != 0;) {
    InterruptionPoint();
    if (got < 0 && errno != EINTR) return Failed("read", errno);
    if (got > 0) content_.append(buffer, static_cast<size_t>(got));
    if (content_.size() > limit_) return TooLong();
  }
  if (content_.empty()) return absl::InvalidArgumentError("is empty; it can be read only once");
  size_ = content_.size();
  return absl::OkStatus();
}

absl::Status InputFile::TooLong() const {
  return absl::InvalidArgumentError(
      absl::StrCat("has more than ", limit_, " bytes, the most that can be read into memory"));
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, kClosed)),
      limit_(other.limit_),
      size_(other.size_),
      content_(std::move(other.content_)) {}

InputFile::~InputFile() {
  if (descriptor_ != kClosed) close(descriptor_);
}

absl::StatusOr<std::string> InputFile::Read(uint64_t offset, uint64_t count) const {
  if (count > size_ || offset > size_ - count) {
    return absl::InvalidArgumentError(
        absl::StrCat("is truncated: has ", size_, " bytes, needs ", count, " from byte ", offset));
  }
  if (count > limit_) return TooLong();
  if (!content_.empty()) return content_.substr(offset, count);
  std::string bytes(count, '\0');
  for (uint64_t done = 0; done < count;) {
    InterruptionPoint();
    const uint64_t wanted = std::min(count - done, kBytesOfARead);
    const ssize_t got = pread(descriptor_, bytes.data() + done, wanted, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed("read", errno);
    if (got == 0) return absl::UnavailableError("was truncated while it was read");
    done += static_cast<uint64_t>(got);
  }
  return bytes;
}

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t limit, Streams streams) {
  POSENC_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path, limit, streams));
  return file.Read(0, file.size());
}

}  // namespace posenc
