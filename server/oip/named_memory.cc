#include "server/oip/named_memory.h"

#include <limits>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "server/core/refusal.h"
#include "server/shared_memory/mapped_memory.h"

namespace posenc::server {
namespace {

constexpr size_t kMostRegionName = 256;

absl::Status NoSuchRegion(const std::string& name) {
  return NotFound("name", name, "must be a region that this caller has registered");
}

absl::Status Taken(const std::string& name) {
  return Refusal(absl::StatusCode::kAlreadyExists, "CONFLICT", "name", name, "must not be registered already");
}

absl::Status Off(std::string_view field, const std::string& value) {
  return Refusal(absl::StatusCode::kUnimplemented, "UNSUPPORTED", field, value,
                 "must be absent: the server has no --inference-memory-prefix");
}

absl::Status CheckNumbers(const NamedMemory::Region& region) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (region.name.empty() || region.name.size() > kMostRegionName) {
    return InvalidArgument("OUT_OF_RANGE", "name", absl::StrCat(region.name.size(), " bytes"),
                           absl::StrCat("must have 1 .. ", kMostRegionName, " bytes"));
  }
  for (const auto& [field, value] : {std::pair{"offset", region.offset}, {"byte_size", region.byte_size}}) {
    if (value <= kMost) continue;
    return InvalidArgument("OUT_OF_RANGE", field, absl::StrCat(value), "must be within the object");
  }
  return absl::OkStatus();
}

}  // namespace

NamedMemory::~NamedMemory() {
  for (const auto& [key, region] : regions_) registry_->Unregister(region.token);
}

absl::Status NamedMemory::Register(const std::string& scope, const Region& region) {
  if (!is_on()) return Off("key", region.key);
  POSENC_RETURN_IF_ERROR(CheckNumbers(region));
  if (const std::lock_guard lock(mutex_); regions_.contains({scope, region.name})) return Taken(region.name);
  std::map<Key, Region> made = {{{scope, region.name}, region}};  // here, so that nothing fails once it is registered
  const auto offset = static_cast<int64_t>(region.offset), byte_size = static_cast<int64_t>(region.byte_size);
  auto file = OpenPosix(region.key, prefix_, byte_size, /*read_only=*/false, offset);
  if (!file.ok()) {
    // Triton's code for an object that cannot be opened.
    const ErrorDetails details = DetailsOf(file.status());
    const absl::Status status = details.reason == "UNSUPPORTED" ? Refusal(absl::StatusCode::kInternal, details.reason,
                                                                          details.field, details.value, details.limit)
                                                                : file.status();
    return Renamed(status, [](const std::string& field) { return field == "name" ? "key" : field; });
  }
  auto token = registry_->Register(*file, byte_size, /*read_only=*/false, SharedMemoryRegistry::Holder::kName, offset);
  if (!token.ok()) {
    return Renamed(token.status(), [](const std::string& field) { return field.empty() ? "name" : field; });
  }
  made.begin()->second.token = *std::move(token);
  {
    // Not held before, because receiving threads wait for it, and opening and mapping can take long.
    const std::lock_guard lock(mutex_);
    regions_.merge(made);
    if (made.empty()) ++changes_;
  }
  if (made.empty()) return absl::OkStatus();
  // Another call has registered the name meanwhile.
  registry_->Unregister(made.begin()->second.token);
  return Taken(region.name);
}

absl::Status NamedMemory::Unregister(const std::string& scope, const std::string& name) {
  if (!is_on() && !name.empty()) return Off("name", name);
  std::vector<std::string> tokens;
  {
    const std::lock_guard lock(mutex_);
    auto at = regions_.lower_bound({scope, name});
    while (at != regions_.end() && at->first.first == scope && (name.empty() || at->first.second == name)) {
      tokens.push_back(std::move(at->second.token));
      at = regions_.erase(at);
      ++changes_;
    }
  }
  // Without the lock, for which calls wait: unmapping gigabytes takes long.
  for (const std::string& token : tokens) registry_->Unregister(token);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NamedMemory::Region>> NamedMemory::List(const std::string& scope,
                                                                   const std::string& name) const {
  std::vector<Region> found;
  const std::lock_guard lock(mutex_);
  for (auto at = regions_.lower_bound({scope, name});
       at != regions_.end() && at->first.first == scope && (name.empty() || at->first.second == name); ++at) {
    found.push_back(at->second);
  }
  if (!name.empty() && found.empty()) return NoSuchRegion(name);
  return found;
}

absl::StatusOr<v1::Region> NamedMemory::Part(const std::string& scope, const std::string& name, int64_t offset,
                                             int64_t byte_size) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find({scope, name});
  if (found == regions_.end()) return NoSuchRegion(name);
  const Region& region = found->second;
  const auto size = static_cast<int64_t>(region.byte_size);
  if (offset < 0 || byte_size < 0 || byte_size > size || offset > size - byte_size) {
    return InvalidArgument("OUT_OF_RANGE", "shared_memory_offset", absl::StrCat(byte_size, " bytes at offset ", offset),
                           absl::StrCat("must be within the region's ", size, " bytes"));
  }
  v1::Region part;
  part.set_token(region.token);
  part.set_offset(offset);
  part.set_byte_size(byte_size);
  return part;
}

}  // namespace posenc::server
