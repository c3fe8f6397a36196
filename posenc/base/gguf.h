// The GGUF format (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md), versions 2 and 3, little-endian:
//
//   "GGUF", uint32 version, uint64 tensors, uint64 pairs      strings: uint64 length, bytes
//   pairs:    string key, uint32 type, value                  arrays:  uint32 type, uint64 count, values
//   tensors:  string name, uint32 dimensions, uint64 sizes (innermost first), uint32 type, uint64 offset
//   padding to general.alignment (default 32), then the tensors' data; offsets count from here
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace posenc {

// Errors call a key of the file gguf.KEY, a tensor gguf.NAME, and the header's own fields as the format's specification
// does: gguf.version, gguf.tensor_count, gguf.metadata_kv_count.
inline constexpr std::string_view kGguf = "gguf";
inline constexpr std::string_view kGgufMagic = "GGUF";

enum class GgufValueType : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};
// Returns "UINT8", ..., or "type N" for an unknown number.
std::string NameOf(GgufValueType type);

struct GgufPair {
  std::string key;
  GgufValueType type;
  std::string value;  // bytes as in the file
};

// A tensor of FP32 divisors of frequencies.
struct GgufFactors {
  std::string name;
  std::vector<float> values;
};

// The part of a GGUF that concerns positions: its metadata without the tokenizer, and its small tensors of frequency
// factors.
struct Gguf {
  uint32_t version = 3;
  std::vector<GgufPair> pairs;
  std::vector<GgufFactors> factors;
};

// llama.cpp's names of the tensors that Gguf::factors holds. They have no spellings by layer.
inline constexpr std::string_view kRopeFreqs = "rope_freqs.weight";
inline constexpr std::string_view kRopeFactorsLong = "rope_factors_long.weight";
inline constexpr std::string_view kRopeFactorsShort = "rope_factors_short.weight";

// Random access to the bytes of a file. `read` is called with ranges within the file only.
struct GgufSource {
  uint64_t size;
  std::function<absl::StatusOr<std::string>(uint64_t offset, uint64_t count)> read;
};

// Reads the header and the tensors of frequency factors at their offsets. Leaves out tokenizer.* and strings and arrays
// of general.* above 64 KiB. INVALID_ARGUMENT names the key or tensor that breaks the format or a limit: 65,536 pairs,
// 1,048,576 tensors, keys and names of 1 KiB, values of 64 KiB, 16 MiB of values in all, 65,536 factors, and for all
// that comes before the tensors' data, also what is left out, 256 MiB with 4,194,304 strings in arrays.
absl::StatusOr<Gguf> ReadGguf(const GgufSource& source);
// Overload for a file in memory.
absl::StatusOr<Gguf> ReadGguf(std::string_view bytes);

// Returns a GGUF with these pairs, and tensors of the factors.
std::string WriteGguf(const Gguf& gguf);

}  // namespace posenc
