// 128 bits that stand for everything that determines an answer: equal fingerprints, equal bytes.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace posenc {

// Collects the parts in order; each is written with its length, so that no two lists of parts coincide.
class Fingerprint {
 public:
  Fingerprint& Add(std::string_view text);
  Fingerprint& Add(int64_t value);
  Fingerprint& Add(double value) { return Add(std::bit_cast<int64_t>(value)); }
  Fingerprint& Add(const std::vector<double>& values);

  // 16 bytes: XXH3-128 of the parts, big-endian (xxHash's canonical form), the same on every machine.
  std::string Digest() const;
  // All of them, for those whom a digest does not satisfy.
  const std::string& parts() const { return parts_; }

 private:
  std::string parts_;
};

}  // namespace posenc
