#include "posenc/base/fingerprint.h"

#include <xxhash.h>

#include <bit>
#include <new>

namespace posenc {

static_assert(std::endian::native == std::endian::little, "numbers are added as they lie in memory");

void Fingerprint::FreeState::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Fingerprint::Fingerprint() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Fingerprint::AddPiece(const void* data, size_t size) {
  if (key_ != nullptr) {
    key_->append(static_cast<const char*>(data), size);
  } else {
    XXH3_128bits_update(state_.get(), data, size);
  }
}

Fingerprint& Fingerprint::Add(int64_t value) {
  AddPiece(&value, sizeof(value));
  return *this;
}

Fingerprint& Fingerprint::Add(std::string_view text) {
  Add(static_cast<int64_t>(text.size()));
  AddPiece(text.data(), text.size());
  return *this;
}

Fingerprint& Fingerprint::Add(const std::vector<double>& values) {
  Add(static_cast<int64_t>(values.size()));
  AddPiece(values.data(), values.size() * sizeof(double));
  return *this;
}

std::string Fingerprint::Digest() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
  return std::string(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest));
}

}  // namespace posenc
