#include "posenc/gguf/gguf_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "posenc/base/status.h"

namespace posenc {
namespace {

constexpr uint64_t kMostListed = 512;  // LLAMA_MAX_LAYERS

template <typename Number>
Number Decode(std::string_view bytes) {
  Number number;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

std::string FullPath(std::string_view key) { return fmt::format("{}.{}", kGguf, Quote(key)); }

absl::Status WrongType(const GgufPair& pair, std::string_view wanted) {
  return InvalidArgument("OUT_OF_RANGE", FullPath(pair.key), NameOf(pair.type),
                         fmt::format("must be {}, as llama.cpp reads it", wanted));
}

const GgufPair* FindPair(const Gguf& gguf, std::string_view key) {
  for (const GgufPair& pair : gguf.pairs) {
    if (pair.key == key) return &pair;
  }
  return nullptr;
}

std::string_view Text(const GgufPair& pair) { return std::string_view(pair.value).substr(sizeof(uint64_t)); }

}  // namespace

std::string GgufFields::Path(std::string_view key) const { return FullPath(fmt::format("{}.{}", architecture_, key)); }

const GgufPair* GgufFields::Find(std::string_view key) const {
  const std::string full = fmt::format("{}.{}", architecture_, key);
  read_.insert(full);
  return FindPair(gguf_, full);
}

absl::StatusOr<std::optional<double>> GgufFields::Float(std::string_view key) const {
  const GgufPair* pair = Find(key);
  if (pair == nullptr) return std::nullopt;
  if (pair->type != GgufValueType::kFloat32) return WrongType(*pair, "a FLOAT32");
  const double value = Decode<float>(pair->value);
  if (!std::isfinite(value)) {
    return InvalidArgument("OUT_OF_RANGE", FullPath(pair->key), fmt::format("{}", value), "must be finite");
  }
  return value;
}

absl::StatusOr<std::optional<uint32_t>> GgufFields::Number(std::string_view key) const {
  const GgufPair* pair = Find(key);
  if (pair == nullptr) return std::nullopt;
  if (pair->type != GgufValueType::kUint32) return WrongType(*pair, "a UINT32");
  return Decode<uint32_t>(pair->value);
}

absl::StatusOr<std::optional<bool>> GgufFields::Bool(std::string_view key) const {
  const GgufPair* pair = Find(key);
  if (pair == nullptr) return std::nullopt;
  if (pair->type != GgufValueType::kBool) return WrongType(*pair, "a BOOL");
  return pair->value[0] != 0;
}

absl::StatusOr<std::optional<std::string>> GgufFields::String(std::string_view key) const {
  const GgufPair* pair = Find(key);
  if (pair == nullptr) return std::nullopt;
  if (pair->type != GgufValueType::kString) return WrongType(*pair, "a STRING");
  return std::string(Text(*pair));
}

absl::StatusOr<std::optional<std::vector<int64_t>>> GgufFields::List(std::string_view key) const {
  const GgufPair* pair = Find(key);
  if (pair == nullptr || pair->type != GgufValueType::kArray) return std::nullopt;
  const auto type = static_cast<GgufValueType>(Decode<uint32_t>(pair->value));
  const std::string_view rest = std::string_view(pair->value).substr(sizeof(uint32_t));
  const uint64_t count = Decode<uint64_t>(rest);
  const std::string_view elements = rest.substr(sizeof(uint64_t));
  const bool is_bool = type == GgufValueType::kBool;
  if (!is_bool && type != GgufValueType::kUint32 && type != GgufValueType::kInt32) {
    return InvalidArgument("OUT_OF_RANGE", FullPath(pair->key), "a list of " + NameOf(type),
                           "must be a list of UINT32, INT32 or BOOL, as llama.cpp reads it");
  }
  if (count > kMostListed) {
    return InvalidArgument("OUT_OF_RANGE", FullPath(pair->key), fmt::format("{} numbers", count),
                           fmt::format("must have at most {} numbers", kMostListed));
  }
  std::vector<int64_t> numbers;
  for (uint64_t n = 0; n < count; ++n) {
    if (is_bool) {
      numbers.push_back(elements[n] != 0);
    } else if (type == GgufValueType::kUint32) {
      numbers.push_back(Decode<uint32_t>(elements.substr(n * sizeof(uint32_t))));
    } else {
      numbers.push_back(Decode<int32_t>(elements.substr(n * sizeof(int32_t))));
    }
  }
  return numbers;
}

absl::StatusOr<std::optional<std::vector<int64_t>>> GgufFields::NumberOrList(std::string_view key, size_t count,
                                                                             bool is_signed) const {
  POSENC_ASSIGN_OR_RETURN(auto list, List(key));
  if (list) {
    if (list->size() == count) return list;
    return InvalidArgument("MISMATCH", Path(key), fmt::format("{} numbers", list->size()),
                           fmt::format("must have {} numbers", count));
  }
  const GgufPair* pair = Find(key);
  if (pair == nullptr) return std::nullopt;
  if (is_signed) {
    if (pair->type != GgufValueType::kInt32) return WrongType(*pair, "an INT32 or a list");
    return std::vector<int64_t>(count, Decode<int32_t>(pair->value));
  }
  if (pair->type != GgufValueType::kUint32) return WrongType(*pair, "a UINT32 or a list");
  return std::vector<int64_t>(count, Decode<uint32_t>(pair->value));
}

std::vector<std::string> GgufFields::UnreadRopePaths() const {
  std::vector<std::string> unread;
  for (const GgufPair& pair : gguf_.pairs) {
    if (pair.key.starts_with(architecture_ + ".rope.") && !read_.contains(pair.key)) {
      unread.push_back(FullPath(pair.key));
    }
  }
  return unread;
}

absl::StatusOr<std::string> ArchitectureOf(const Gguf& gguf) {
  constexpr std::string_view kKey = "general.architecture";
  const GgufPair* pair = FindPair(gguf, kKey);
  if (pair == nullptr) {
    return InvalidArgument("MISSING", FullPath(kKey), "",
                           FindPair(gguf, "split.no") == nullptr
                               ? "must be given: it says how llama.cpp reads the file"
                               : "must be given: this is a later part of a model, take its first file");
  }
  if (pair->type != GgufValueType::kString) return WrongType(*pair, "a STRING");
  return std::string(Text(*pair));
}

const std::vector<float>* FactorsOf(const Gguf& gguf, std::string_view name) {
  for (const GgufFactors& factors : gguf.factors) {
    if (factors.name == name) return &factors.values;
  }
  return nullptr;
}

bool IsSplit(const Gguf& gguf) {
  const GgufPair* pair = FindPair(gguf, "split.count");
  return pair != nullptr && pair->type == GgufValueType::kUint16 && Decode<uint16_t>(pair->value) > 1;
}

}  // namespace posenc
