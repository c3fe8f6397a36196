// Typed access to the metadata of a GGUF, with the types that llama.cpp requires.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/gguf.h"

namespace posenc {

// Getters take a key without "ARCHITECTURE."; they return nullopt if it is absent, and INVALID_ARGUMENT naming the key
// if its value has another type, is not finite, or is a list of more than 512 numbers.
class GgufFields {
 public:
  // `gguf` must outlive this.
  GgufFields(const Gguf& gguf, std::string architecture) : gguf_(gguf), architecture_(std::move(architecture)) {}

  // Returns "gguf.ARCHITECTURE.KEY", for errors.
  std::string Path(std::string_view key) const;
  absl::StatusOr<std::optional<double>> Float(std::string_view key) const;        // FLOAT32
  absl::StatusOr<std::optional<uint32_t>> Number(std::string_view key) const;     // UINT32
  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;           // BOOL
  absl::StatusOr<std::optional<std::string>> String(std::string_view key) const;  // STRING
  // A list of UINT32, INT32 or BOOL; nullopt also for a value that is no list.
  absl::StatusOr<std::optional<std::vector<int64_t>>> List(std::string_view key) const;
  // A list of `count` numbers, or one number that stands for all of them (UINT32, or INT32 if `is_signed`).
  absl::StatusOr<std::optional<std::vector<int64_t>>> NumberOrList(std::string_view key, size_t count,
                                                                   bool is_signed = false) const;

  // Paths of the keys of ARCHITECTURE.rope. that no getter was asked for.
  std::vector<std::string> UnreadRopePaths() const;

 private:
  const GgufPair* Find(std::string_view key) const;

  const Gguf& gguf_;
  const std::string architecture_;
  mutable std::set<std::string, std::less<>> read_;
};

// Returns general.architecture. INVALID_ARGUMENT (MISSING) if the file has none.
absl::StatusOr<std::string> ArchitectureOf(const Gguf& gguf);
// Returns the values of a tensor of frequency factors, or null.
const std::vector<float>* FactorsOf(const Gguf& gguf, std::string_view name);
// True if the file is one of several parts, the rest of which may hold tensors (split.count).
bool IsSplit(const Gguf& gguf);

}  // namespace posenc
