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
// tmpfs and have at least byte_size bytes from `offset` on.
absl::StatusOr<Descriptor> OpenPosix(const std::string& name, const std::string& prefix, int64_t byte_size,
                                     bool read_only, int64_t offset = 0);

class MappedMemory final : public wire::SharedMemory {
 public:
  // Maps byte_size bytes of the file from `offset` on, at least one. The descriptor may be closed afterwards.
  static absl::StatusOr<std::unique_ptr<MappedMemory>> Map(const Descriptor& file, int64_t byte_size, bool read_only,
                                                           int64_t offset = 0);
  ~MappedMemory() override;

  absl::Span<std::byte> bytes() const override { return {begin_ + skipped_, size_}; }
  bool writable() const override { return writable_; }
  std::pair<uint64_t, uint64_t> file() const override { return file_; }
  int64_t file_offset() const override { return offset_; }
  // True unless the file's user is the server's or root.
  bool of_other_user() const override { return of_other_user_; }
  bool damaged() const override { return guard_ != nullptr && guard_->damaged(); }

 private:
  MappedMemory(int64_t size, bool writable, int64_t offset);
  size_t mapped_bytes() const;

  std::byte* begin_ = nullptr;  // of the first page; null: not mapped yet
  const size_t size_;
  const bool writable_;
  const int64_t offset_;                // in the file
  const size_t skipped_;                // bytes of the first page before the offset
  std::pair<uint64_t, uint64_t> file_;  // device and inode
  bool of_other_user_ = false;
  std::unique_ptr<FaultGuard> guard_;
};

}  // namespace posenc::server
