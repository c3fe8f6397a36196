#include "posenc/base/fingerprint.h"

#include <xxhash.h>

#include <bit>

namespace posenc {

static_assert(std::endian::native == std::endian::little, "numbers are added as they lie in memory");

Fingerprint& Fingerprint::Add(int64_t value) {
  parts_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  return *this;
}

Fingerprint& Fingerprint::Add(std::string_view text) {
  Add(static_cast<int64_t>(text.size()));
  parts_ += text;
  return *this;
}

Fingerprint& Fingerprint::Add(const std::vector<double>& values) {
  Add(static_cast<int64_t>(values.size()));
  parts_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
  return *this;
}

std::string Fingerprint::Digest() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(parts_.data(), parts_.size()));
  return std::string(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest));
}

}  // namespace posenc
