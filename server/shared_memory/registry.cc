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

SharedMemoryRegistry::SharedMemoryRegistry(int64_t max_regions, int64_t max_bytes, bool names_have_half) {
  books_->all.most = books_->names.most = {max_regions, max_bytes};
  if (names_have_half) books_->names = {{max_regions - max_regions / 2, max_bytes - max_bytes / 2}, {}, "half of "};
}

absl::Status SharedMemoryRegistry::Quota::Check(int64_t byte_size) const {
  if (used.regions >= most.regions) {
    return TooLarge("", absl::StrCat(used.regions, " regions"),
                    absl::StrCat("must be at most ", most.regions, " (", part, "max_regions)"));
  }
  if (byte_size > most.bytes - used.bytes) {
    return TooLarge("byte_size", absl::StrCat(byte_size),
                    absl::StrCat("must be at most ", most.bytes, " in total (", part, "max_region_bytes), of which ",
                                 used.bytes, " are in use"));
  }
  return absl::OkStatus();
}

void SharedMemoryRegistry::Quota::Add(int64_t regions, int64_t bytes) {
  used.regions += regions;
  used.bytes += bytes;
}

absl::StatusOr<SharedMemoryRegistry::Place> SharedMemoryRegistry::Enter(int64_t byte_size, Holder holder) {
  const auto leave = [books = books_, byte_size, holder](void*) {
    const std::lock_guard lock(books->mutex);
    books->all.Add(-1, -byte_size);
    if (holder == Holder::kName) books->names.Add(-1, -byte_size);
  };
  {
    const std::lock_guard lock(books_->mutex);
    POSENC_RETURN_IF_ERROR(books_->all.Check(byte_size));
    if (holder == Holder::kName) {
      POSENC_RETURN_IF_ERROR(books_->names.Check(byte_size));
      books_->names.Add(1, byte_size);
    }
    books_->all.Add(1, byte_size);
  }
  return Place(nullptr, leave);  // calls `leave` also if it cannot allocate
}

absl::StatusOr<std::string> SharedMemoryRegistry::Keep(std::unique_ptr<const wire::SharedMemory> memory, Place place) {
  POSENC_ASSIGN_OR_RETURN(std::string token, NewToken());
  std::shared_ptr<const wire::SharedMemory> kept(memory.release(),
                                                 [place = std::move(place)](const wire::SharedMemory* owned) mutable {
                                                   delete owned;
                                                   place = nullptr;
                                                 });
  const std::lock_guard lock(mutex_);
  memory_.emplace(token, std::move(kept));
  return token;
}

absl::StatusOr<std::string> SharedMemoryRegistry::Register(const Descriptor& file, int64_t byte_size, bool read_only,
                                                           Holder holder, int64_t offset) {
  POSENC_ASSIGN_OR_RETURN(Place place, Enter(byte_size, holder));
  POSENC_ASSIGN_OR_RETURN(auto memory, MappedMemory::Map(file, byte_size, read_only, offset));
  return Keep(std::move(memory), std::move(place));
}

absl::StatusOr<std::string> SharedMemoryRegistry::RegisterOn(Device* device, std::string_view handle, int64_t byte_size,
                                                             bool read_only) {
  if (byte_size < 1) return InvalidArgument("OUT_OF_RANGE", "byte_size", absl::StrCat(byte_size), "must be at least 1");
  POSENC_ASSIGN_OR_RETURN(Place place, Enter(0, Holder::kConnection));
  POSENC_ASSIGN_OR_RETURN(DeviceMemory opened, device->Open(handle, static_cast<size_t>(byte_size)));
  return Keep(std::make_unique<DeviceRegion>(device, std::move(opened), read_only), std::move(place));
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
  return books_->all.used;
}

}  // namespace posenc::server
