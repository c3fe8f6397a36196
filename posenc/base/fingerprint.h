// 128-bit hash of everything that determines an answer: equal fingerprints mean equal answer bytes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct XXH3_state_s;

namespace posenc {

// Hashes parts in order; it does not keep them. Text and vectors are prefixed with their length, so that different
// sequences of parts do not concatenate to the same bytes.
class Fingerprint {
 public:
  Fingerprint();
  // Appends the parts to `key` instead, for callers that compare all bytes. `key` must outlive it.
  explicit Fingerprint(std::string* key) : key_(key) {}

  Fingerprint& Add(std::string_view text);
  Fingerprint& Add(int64_t value);
  Fingerprint& Add(double value) { return Add(std::bit_cast<int64_t>(value)); }
  Fingerprint& Add(const std::vector<double>& values);
  // Adds bytes without their number. A text may be added in pieces: its size as a number, then these.
  void AddPiece(const void* data, size_t size);

  // Returns 16 bytes: XXH3-128 of the parts, big-endian (xxHash's canonical form), the same on every machine. Requires
  // that there is no key.
  std::string Digest() const;

 private:
  struct FreeState {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, FreeState> state_;
  std::string* const key_ = nullptr;
};

}  // namespace posenc
