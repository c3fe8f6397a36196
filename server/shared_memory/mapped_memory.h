// A caller's memory, mapped and guarded against SIGBUS.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "posenc/wire/shared_memory.h"
#include "server/core/descriptor.h"
#include "server/shared_memory/fault_guard.h"

namespace posenc::server {

// Checks before mapping. Errors (INVALID_ARGUMENT) name field, value and limit.

// Checks that `file` is a memfd, sealed against shrinking and growing, of at least byte_size bytes.
absl::Status CheckMemfd(const Descriptor& file, int64_t byte_size);
// Opens the object of that name, which must begin with `prefix` (an empty prefix allows no name), be a regular file of
// tmpfs and have at least byte_size bytes.
absl::StatusOr<Descriptor> OpenPosix(const std::string& name, const std::string& prefix, int64_t byte_size,
                                     bool read_only);

class MappedMemory final : public wire::SharedMemory {
 public:
  // Maps the first byte_size bytes of the file, at least one. The descriptor may be closed afterwards.
  static absl::StatusOr<std::unique_ptr<MappedMemory>> Map(const Descriptor& file, int64_t byte_size, bool read_only);
  ~MappedMemory() override;

  absl::Span<std::byte> bytes() const override { return {begin_, size_}; }
  bool writable() const override { return writable_; }
  std::pair<uint64_t, uint64_t> file() const override { return file_; }
  // True unless the file's user is the server's or root.
  bool of_other_user() const override { return of_other_user_; }
  bool damaged() const override { return guard_ != nullptr && guard_->damaged(); }

 private:
  MappedMemory(size_t size, bool writable) : size_(size), writable_(writable) {}

  std::byte* begin_ = nullptr;  // not mapped yet
  const size_t size_;
  const bool writable_;
  std::pair<uint64_t, uint64_t> file_;  // device and inode
  bool of_other_user_ = false;
  std::unique_ptr<FaultGuard> guard_;
};

}  // namespace posenc::server
