// Makes GGUF files for tests.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "posenc/base/gguf.h"

namespace posenc::gguf_file {

template <typename Number>
std::string Bytes(Number number) {
  return std::string(reinterpret_cast<const char*>(&number), sizeof(number));
}
inline std::string Text(std::string_view text) { return Bytes<uint64_t>(text.size()) + std::string(text); }

inline GgufPair Number(std::string key, uint32_t value) {
  return {std::move(key), GgufValueType::kUint32, Bytes(value)};
}
inline GgufPair Float(std::string key, float value) { return {std::move(key), GgufValueType::kFloat32, Bytes(value)}; }
inline GgufPair String(std::string key, std::string_view value) {
  return {std::move(key), GgufValueType::kString, Text(value)};
}
inline GgufPair Bool(std::string key, bool value) {
  return {std::move(key), GgufValueType::kBool, std::string(1, value ? '\1' : '\0')};
}
inline GgufPair List(std::string key, const std::vector<int32_t>& values) {
  std::string bytes = Bytes(GgufValueType::kInt32) + Bytes<uint64_t>(values.size());
  for (const int32_t value : values) bytes += Bytes(value);
  return {std::move(key), GgufValueType::kArray, bytes};
}

// A model of two layers with two heads of 8 elements, and these keys, which replace the model's own of the same names.
inline Gguf Model(const std::string& architecture, std::vector<GgufPair> more = {}) {
  Gguf gguf;
  gguf.pairs = {String("general.architecture", architecture), Number(architecture + ".block_count", 2),
                Number(architecture + ".context_length", 4096), Number(architecture + ".embedding_length", 16),
                Number(architecture + ".attention.head_count", 2)};
  for (GgufPair& pair : more) {
    std::erase_if(gguf.pairs, [&](const GgufPair& own) { return own.key == pair.key; });
    gguf.pairs.push_back(std::move(pair));
  }
  return gguf;
}

}  // namespace posenc::gguf_file
