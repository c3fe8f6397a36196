#include "posenc/fingerprint.h"

#include <xxhash.h>

namespace posenc {

Fingerprint& Fingerprint::Add(int64_t value) {
  for (int shift = 0; shift < 64; shift += 8) parts_ += static_cast<char>(static_cast<uint64_t>(value) >> shift);
  return *this;
}

Fingerprint& Fingerprint::Add(std::string_view text) {
  Add(static_cast<int64_t>(text.size()));
  parts_ += text;
  return *this;
}

Fingerprint& Fingerprint::Add(const std::vector<double>& values) {
  Add(static_cast<int64_t>(values.size()));
  for (double value : values) Add(value);
  return *this;
}

std::string Fingerprint::Digest() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(parts_.data(), parts_.size()));
  return std::string(reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest));
}

}  // namespace posenc
