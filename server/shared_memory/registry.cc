#include "server/shared_memory/registry.h"

#include <sys/random.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "server/shared_memory/device_region.h"

namespace posenc::server {
namespace {

constexpr size_t kTokenBytes = 16;

absl::StatusOr<std::string> NewToken() {
  std::string token(kTokenBytes, '\0');
  if (getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(token.size())) return token;
  return absl::InternalError("cannot get random numbers");
}

}  // namespace

absl::Status SharedMemoryRegistry::Enter(int64_t byte_size) {
  const std::lock_guard lock(books_->mutex);
  Counters& counters = books_->counters;
  if (counters.regions >= max_regions_) {
    return TooLarge("", absl::StrCat(counters.regions, " regions"),
                    absl::StrCat("must be at most ", max_regions_, " (max_regions)"));
  }
  if (byte_size > max_bytes_ - counters.bytes) {
    return TooLarge("byte_size", absl::StrCat(byte_size),
                    absl::StrCat("must be at most ", max_bytes_, " in total (max_region_bytes), of which ",
                                 counters.bytes, " are in use"));
  }
  ++counters.regions;
  counters.bytes += byte_size;
  return absl::OkStatus();
}

void SharedMemoryRegistry::Leave(Books* books, int64_t byte_size) {
  const std::lock_guard lock(books->mutex);
  --books->counters.regions;
  books->counters.bytes -= byte_size;
}

template <class Memory>
absl::StatusOr<std::string> SharedMemoryRegistry::Keep(absl::StatusOr<std::unique_ptr<Memory>> memory,
                                                       int64_t counted) {
  absl::StatusOr<std::string> token = NewToken();
  if (!memory.ok() || !token.ok()) {
    Leave(books_.get(), counted);
    return memory.ok() ? token.status() : memory.status();
  }
  std::shared_ptr<const wire::SharedMemory> kept(memory->release(), [books = books_, counted](const Memory* owned) {
    delete owned;
    Leave(books.get(), counted);
  });
  const std::lock_guard lock(mutex_);
  memory_.emplace(*token, std::move(kept));
  return token;
}

absl::StatusOr<std::string> SharedMemoryRegistry::Register(const Descriptor& file, int64_t byte_size, bool read_only) {
  POSENC_RETURN_IF_ERROR(Enter(byte_size));
  return Keep(MappedMemory::Map(file, byte_size, read_only), byte_size);
}

absl::StatusOr<std::string> SharedMemoryRegistry::RegisterOn(Device* device, std::string_view handle, int64_t byte_size,
                                                             bool read_only) {
  if (byte_size < 1) return InvalidArgument("OUT_OF_RANGE", "byte_size", absl::StrCat(byte_size), "must be at least 1");
  POSENC_RETURN_IF_ERROR(Enter(0));
  absl::StatusOr<std::unique_ptr<DeviceRegion>> region;
  auto opened = device->Open(handle, static_cast<size_t>(byte_size));
  if (opened.ok()) {
    region = std::make_unique<DeviceRegion>(device, *std::move(opened), read_only);
  } else {
    region = opened.status();
  }
  return Keep(std::move(region), 0);
}

bool SharedMemoryRegistry::Unregister(std::string_view token) {
  std::shared_ptr<const wire::SharedMemory> memory;  // may be unmapped, after the lock is released
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(token);
  if (found == memory_.end()) return false;
  memory = std::move(found->second);
  memory_.erase(found);
  return true;
}

std::shared_ptr<const wire::SharedMemory> SharedMemoryRegistry::Find(std::string_view token) const {
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(token);
  return found == memory_.end() ? nullptr : found->second;
}

SharedMemoryRegistry::Counters SharedMemoryRegistry::counters() const {
  const std::lock_guard lock(books_->mutex);
  return books_->counters;
}

}  // namespace posenc::server
