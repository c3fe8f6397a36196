// 128-bit hash of everything that determines an answer: equal fingerprints mean equal answer bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace posenc {

// Collects the hashed parts in order. Text and vectors are prefixed with their length, so that different sequences of
// parts do not concatenate to the same bytes.
class Fingerprint {
 public:
  Fingerprint& Add(std::string_view text);
  Fingerprint& Add(int64_t value);
  Fingerprint& Add(double value) { return Add(std::bit_cast<int64_t>(value)); }
  Fingerprint& Add(const std::vector<double>& values);

  // Returns 16 bytes: XXH3-128 of the parts, big-endian (xxHash's canonical form), the same on every machine.
  std::string Digest() const;
  // The serialized parts, for callers that compare all bytes instead of a digest.
  const std::string& parts() const { return parts_; }

 private:
  std::string parts_;
};

}  // namespace posenc
