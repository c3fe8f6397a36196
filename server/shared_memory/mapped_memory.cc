#include "server/shared_memory/mapped_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <climits>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"

namespace posenc::server {
namespace {

// Accepts regular tmpfs files only: huge pages, devices and other file systems can block or fault in other ways.
absl::Status CheckFile(std::string_view field, const Descriptor& file, int64_t byte_size, int64_t offset = 0) {
  struct statfs system = {};
  struct stat status = {};
  if (fstatfs(file.get(), &system) != 0 || fstat(file.get(), &status) != 0) {
    return InvalidArgument("UNSUPPORTED", field, "", "must be memory that can be opened: " + TextOf(errno));
  }
  if (!S_ISREG(status.st_mode) || system.f_type != TMPFS_MAGIC) {
    return InvalidArgument("UNSUPPORTED", field, "", "must be a regular file of a tmpfs, without huge pages");
  }
  if (byte_size < 1 || byte_size > status.st_size) {
    return InvalidArgument("OUT_OF_RANGE", "byte_size", absl::StrCat(byte_size),
                           absl::StrCat("must be from 1 to the file's size, ", status.st_size));
  }
  if (offset < 0 || offset > status.st_size - byte_size) {
    return InvalidArgument(
        "OUT_OF_RANGE", "offset", absl::StrCat(offset),
        absl::StrCat("must be from 0 to ", status.st_size - byte_size, ", the file's size without byte_size"));
  }
  return absl::OkStatus();
}

size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

absl::Status CheckMemfd(const Descriptor& file, int64_t byte_size) {
  // Files that memfd_create did not make fail here, or lack the seals.
  const int seals = fcntl(file.get(), F_GET_SEALS);
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW;
  if (seals < 0) return InvalidArgument("UNSUPPORTED", "register_memfd", "", "must be a memfd");
  if ((seals & kNeeded) != kNeeded) {
    return InvalidArgument("UNSUPPORTED", "register_memfd", "", "must be sealed with F_SEAL_SHRINK and F_SEAL_GROW");
  }
  return CheckFile("register_memfd", file, byte_size);
}

absl::StatusOr<Descriptor> OpenPosix(const std::string& name, const std::string& prefix, int64_t byte_size,
                                     bool read_only, int64_t offset) {
  if (prefix.empty()) {
    return InvalidArgument("UNSUPPORTED", "register_posix", "",
                           "must be absent: the server has no --shared-memory-prefix, register a memfd");
  }
  const bool one_part =
      name.size() > 1 && name.find('/', 1) == std::string::npos && name.find('\0') == std::string::npos;
  if (!name.starts_with(prefix) || !one_part || name.size() > NAME_MAX) {
    return InvalidArgument("OUT_OF_RANGE", "name", name,
                           absl::StrCat("must begin with ", prefix, ", without another slash or a zero byte"));
  }
  // Without O_NONBLOCK, opening a FIFO of that name would block.
  Descriptor file(shm_open(name.c_str(), (read_only ? O_RDONLY : O_RDWR) | O_NONBLOCK, 0));
  if (!file.valid())
    return InvalidArgument("UNSUPPORTED", "name", name, "must be memory that can be opened: " + TextOf(errno));
  POSENC_RETURN_IF_ERROR(CheckFile("name", file, byte_size, offset));
  return file;
}

MappedMemory::MappedMemory(int64_t size, bool writable, int64_t offset)
    : size_(static_cast<size_t>(size)),
      writable_(writable),
      offset_(offset),
      skipped_(static_cast<size_t>(offset) % PageBytes()) {}

size_t MappedMemory::mapped_bytes() const {
  const size_t page = PageBytes();
  return (skipped_ + size_ + page - 1) / page * page;
}

absl::StatusOr<std::unique_ptr<MappedMemory>> MappedMemory::Map(const Descriptor& file, int64_t byte_size,
                                                                bool read_only, int64_t offset) {
  std::unique_ptr<MappedMemory> memory(new MappedMemory(byte_size, !read_only, offset));
  struct stat status = {};
  const size_t pages = memory->mapped_bytes();
  const auto from = static_cast<off_t>(offset - static_cast<int64_t>(memory->skipped_));
  const int protection = PROT_READ | (read_only ? 0 : PROT_WRITE);
  void* begin =
      fstat(file.get(), &status) == 0 ? mmap(nullptr, pages, protection, MAP_SHARED, file.get(), from) : MAP_FAILED;
  if (begin == MAP_FAILED && errno == EPERM && read_only) {
    // Sealed against writing: a shared mapping of a writable descriptor, which could become writable, is refused.
    begin = mmap(nullptr, pages, protection, MAP_PRIVATE, file.get(), from);
  }
  if (begin == MAP_FAILED) {
    const bool refused = errno == EPERM || errno == EACCES;
    return InvalidArgument("UNSUPPORTED", "read_only", read_only ? "true" : "false",
                           absl::StrCat("must be memory that can be mapped: ", TextOf(errno),
                                        refused && !read_only ? "; register it as read_only" : ""));
  }
  memory->begin_ = static_cast<std::byte*>(begin);
  memory->file_ = {status.st_dev, status.st_ino};
  memory->of_other_user_ = status.st_uid != geteuid() && status.st_uid != 0;
  memory->guard_ = FaultGuard::Make(begin, pages, !read_only);
  if (memory->guard_ == nullptr)
    return TooLarge("byte_size", absl::StrCat(byte_size), "must be less: too many or too large mappings");
  return memory;
}

MappedMemory::~MappedMemory() {
  guard_.reset();  // before the address range can be reused
  if (begin_ != nullptr) munmap(begin_, mapped_bytes());
}

}  // namespace posenc::server
