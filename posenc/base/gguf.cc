#include "posenc/base/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "posenc/base/interruption.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

constexpr uint64_t kMostPairs = 65536, kMostTensors = 1 << 20, kMostFactors = 65536;
constexpr uint64_t kLongestName = 1024, kLongestValue = 65536, kMostValueBytes = 16 << 20;
// A vocabulary of 262,144 tokens has 776,000 strings in arrays, and 20 MiB.
constexpr uint64_t kMostStrings = 1 << 22, kMostHeaderBytes = 256 << 20;
constexpr uint64_t kMostDimensions = 4;  // GGML_MAX_DIMS
constexpr uint64_t kLargestAlignment = 1 << 20, kDefaultAlignment = 32;
constexpr uint64_t kWindow = 1 << 18;  // bytes that one read fetches
constexpr uint32_t kTensorOfFloat32 = 0;

constexpr std::string_view kValueTypes[] = {"UINT8", "INT8",   "UINT16", "INT16",  "UINT32", "INT32",  "FLOAT32",
                                            "BOOL",  "STRING", "ARRAY",  "UINT64", "INT64",  "FLOAT64"};
constexpr uint64_t kValueSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // 0: strings and arrays

std::string Path(std::string_view name) { return fmt::format("{}.{}", kGguf, Quote(name)); }

template <typename Number>
Number Decode(std::string_view bytes) {
  Number number;
  std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}
template <typename Number>
void Append(Number number, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&number), sizeof(number));
}
void AppendString(std::string_view text, std::string* bytes) {
  Append<uint64_t>(text.size(), bytes);
  bytes->append(text);
}

uint64_t Aligned(uint64_t offset, uint64_t alignment) { return (offset + alignment - 1) / alignment * alignment; }

bool IsFactors(std::string_view name) {
  return name == kRopeFreqs || name == kRopeFactorsLong || name == kRopeFactorsShort;
}

// Reads a file from its beginning on, through a window.
class Reading {
 public:
  explicit Reading(const GgufSource& source) : source_(source) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return source_.size - at_; }

  // Counts the strings of an array.
  absl::Status AddStrings(uint64_t count, const std::string& field) {
    if (count <= kMostStrings - strings_) {
      strings_ += count;
      return absl::OkStatus();
    }
    return InvalidArgument("OUT_OF_RANGE", field, fmt::format("{} strings", count),
                           fmt::format("must be at most {} strings, with the arrays before it", kMostStrings));
  }

  // `field`: what the bytes are part of, for errors.
  absl::StatusOr<std::string> Bytes(uint64_t count, const std::string& field) {
    POSENC_RETURN_IF_ERROR(Need(count, field));
    if (at_ < window_at_ || at_ + count > window_at_ + window_.size()) {
      InterruptionPoint();
      window_at_ = at_;
      POSENC_ASSIGN_OR_RETURN(window_, source_.read(at_, std::min(std::max(count, kWindow), left())));
    }
    std::string bytes = window_.substr(at_ - window_at_, count);
    at_ += count;
    return bytes;
  }
  absl::Status Skip(uint64_t count, const std::string& field) {
    POSENC_RETURN_IF_ERROR(Need(count, field));
    at_ += count;
    return absl::OkStatus();
  }
  template <typename Number>
  absl::StatusOr<Number> Get(const std::string& field) {
    POSENC_ASSIGN_OR_RETURN(const std::string bytes, Bytes(sizeof(Number), field));
    return Decode<Number>(bytes);
  }
  absl::StatusOr<std::string> Name(const std::string& field) {
    POSENC_ASSIGN_OR_RETURN(const uint64_t length, Get<uint64_t>(field));
    if (length > kLongestName) {
      return InvalidArgument("MALFORMED", field, fmt::format("{} bytes", length),
                             fmt::format("must be at most {} bytes", kLongestName));
    }
    return Bytes(length, field);
  }

 private:
  absl::Status Need(uint64_t count, const std::string& field) const {
    const bool in_file = count <= left();
    if (in_file && count <= kMostHeaderBytes - at_) return absl::OkStatus();
    return InvalidArgument("MALFORMED", field, fmt::format("{} bytes at offset {}", count, at_),
                           in_file ? fmt::format("must lie within the file's first {} bytes", kMostHeaderBytes)
                                   : fmt::format("must lie within the file, which has {} bytes", source_.size));
  }

  const GgufSource& source_;
  uint64_t at_ = 0;
  std::string window_;
  uint64_t window_at_ = 0;
  uint64_t strings_ = 0;
};

struct Counts {
  uint32_t version;
  uint64_t tensors, pairs;
};

absl::StatusOr<Counts> ReadCounts(Reading& file) {
  const std::string magic_field = Path("magic");
  POSENC_ASSIGN_OR_RETURN(const std::string magic, file.Bytes(kGgufMagic.size(), magic_field));
  if (magic != kGgufMagic) return InvalidArgument("MALFORMED", magic_field, magic, "must be GGUF");
  Counts counts;
  POSENC_ASSIGN_OR_RETURN(counts.version, file.Get<uint32_t>(Path("version")));
  if ((counts.version & 0xffff) == 0) {
    return InvalidArgument("UNSUPPORTED", Path("version"), fmt::format("{:#010x}", counts.version),
                           "must be 2 or 3 in little-endian order: this looks like a big-endian file");
  }
  if (counts.version != 2 && counts.version != 3) {
    return InvalidArgument("UNSUPPORTED", Path("version"), fmt::format("{}", counts.version), "must be 2 or 3");
  }
  POSENC_ASSIGN_OR_RETURN(counts.tensors, file.Get<uint64_t>(Path("tensor_count")));
  POSENC_ASSIGN_OR_RETURN(counts.pairs, file.Get<uint64_t>(Path("metadata_kv_count")));
  const auto check = [](std::string_view name, uint64_t count, uint64_t most) {
    if (count <= most) return absl::OkStatus();
    return InvalidArgument("OUT_OF_RANGE", Path(name), fmt::format("{}", count),
                           fmt::format("must be at most {}", most));
  };
  POSENC_RETURN_IF_ERROR(check("tensor_count", counts.tensors, kMostTensors));
  POSENC_RETURN_IF_ERROR(check("metadata_kv_count", counts.pairs, kMostPairs));
  return counts;
}

absl::StatusOr<uint64_t> SizeOfValue(GgufValueType type, const std::string& field) {
  if (static_cast<size_t>(type) < std::size(kValueSizes)) return kValueSizes[static_cast<size_t>(type)];
  return InvalidArgument("MALFORMED", field, NameOf(type), "must have a value type of 0 .. 12");
}

// Moves to the end of a value that is not kept.
absl::Status SkipValue(Reading& file, GgufValueType type, const std::string& field) {
  POSENC_ASSIGN_OR_RETURN(uint64_t size, SizeOfValue(type, field));
  if (type != GgufValueType::kArray) {
    if (type == GgufValueType::kString) {
      POSENC_ASSIGN_OR_RETURN(size, file.Get<uint64_t>(field));
    }
    return file.Skip(size, field);
  }
  POSENC_ASSIGN_OR_RETURN(const auto element, file.Get<uint32_t>(field));
  const auto element_type = static_cast<GgufValueType>(element);
  POSENC_ASSIGN_OR_RETURN(const uint64_t element_size, SizeOfValue(element_type, field));
  if (element_type == GgufValueType::kArray) {
    return InvalidArgument("UNSUPPORTED", field, "an array of arrays", "must not be nested, as llama.cpp reads it");
  }
  POSENC_ASSIGN_OR_RETURN(const uint64_t count, file.Get<uint64_t>(field));
  const uint64_t least = element_size == 0 ? sizeof(uint64_t) : element_size;  // a string has its length
  if (count > file.left() / least) {
    return InvalidArgument("MALFORMED", field, fmt::format("{} values", count),
                           fmt::format("must lie within the file, of which {} bytes are left", file.left()));
  }
  if (element_size != 0) return file.Skip(count * element_size, field);
  POSENC_RETURN_IF_ERROR(file.AddStrings(count, field));
  for (uint64_t n = 0; n < count; ++n) {
    POSENC_ASSIGN_OR_RETURN(const auto length, file.Get<uint64_t>(field));
    POSENC_RETURN_IF_ERROR(file.Skip(length, field));
  }
  return absl::OkStatus();
}

absl::Status ReadPairs(Reading& file, const GgufSource& source, uint64_t count, Gguf* gguf) {
  std::set<std::string> keys;
  uint64_t bytes = 0;
  for (uint64_t n = 0; n < count; ++n) {
    InterruptionPoint();
    POSENC_ASSIGN_OR_RETURN(std::string key, file.Name(Path("metadata_kv")));
    const std::string field = Path(key);
    POSENC_ASSIGN_OR_RETURN(const auto number, file.Get<uint32_t>(field));
    const auto type = static_cast<GgufValueType>(number);
    const uint64_t begin = file.at();
    POSENC_RETURN_IF_ERROR(SkipValue(file, type, field));
    const uint64_t size = file.at() - begin;
    if (key.starts_with("tokenizer.")) continue;
    if (size > kLongestValue && key.starts_with("general.")) continue;
    bytes += key.size() + size;
    if (size > kLongestValue || bytes > kMostValueBytes) {
      return InvalidArgument(
          "OUT_OF_RANGE", field, fmt::format("{} bytes", size),
          fmt::format("must be at most {} bytes, and {} with the keys before it", kLongestValue, kMostValueBytes));
    }
    if (!keys.insert(key).second) return InvalidArgument("MALFORMED", field, "given twice", "must be given once");
    POSENC_ASSIGN_OR_RETURN(std::string value, source.read(begin, size));
    if (type == GgufValueType::kBool && static_cast<uint8_t>(value[0]) > 1) {
      return InvalidArgument("MALFORMED", field, fmt::format("{}", static_cast<uint8_t>(value[0])), "must be 0 or 1");
    }
    gguf->pairs.push_back({std::move(key), type, std::move(value)});
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> AlignmentOf(const Gguf& gguf) {
  for (const GgufPair& pair : gguf.pairs) {
    if (pair.key != "general.alignment") continue;
    if (pair.type != GgufValueType::kUint32) {
      return InvalidArgument("MALFORMED", Path(pair.key), NameOf(pair.type), "must be a UINT32");
    }
    const uint64_t alignment = Decode<uint32_t>(pair.value);
    if (alignment == 0 || alignment > kLargestAlignment || (alignment & (alignment - 1)) != 0) {
      return InvalidArgument("OUT_OF_RANGE", Path(pair.key), fmt::format("{}", alignment),
                             fmt::format("must be a power of two of at most {}", kLargestAlignment));
    }
    return alignment;
  }
  return kDefaultAlignment;
}

struct TensorPlace {
  std::string name;
  uint64_t count, offset;
};

// Returns the places of the tensors of factors; other tensors are passed over.
absl::StatusOr<std::vector<TensorPlace>> ReadTensorPlaces(Reading& file, uint64_t count, uint64_t alignment) {
  std::vector<TensorPlace> places;
  for (uint64_t n = 0; n < count; ++n) {
    POSENC_ASSIGN_OR_RETURN(std::string name, file.Name(Path("tensor_infos")));
    const std::string field = Path(name);
    POSENC_ASSIGN_OR_RETURN(const auto dimensions, file.Get<uint32_t>(field));
    if (dimensions > kMostDimensions) {
      return InvalidArgument("MALFORMED", field, fmt::format("{} dimensions", dimensions),
                             fmt::format("must have at most {} dimensions", kMostDimensions));
    }
    uint64_t elements = 1;
    bool is_long = false;
    for (uint32_t d = 0; d < dimensions; ++d) {
      POSENC_ASSIGN_OR_RETURN(const auto size, file.Get<uint64_t>(field));
      is_long |= size != 0 && elements > kMostFactors / size;
      elements = is_long ? kMostFactors + 1 : elements * size;
    }
    POSENC_ASSIGN_OR_RETURN(const auto type, file.Get<uint32_t>(field));
    POSENC_ASSIGN_OR_RETURN(const auto offset, file.Get<uint64_t>(field));
    if (!IsFactors(name)) continue;
    if (type != kTensorOfFloat32) {
      return InvalidArgument("UNSUPPORTED", field, fmt::format("ggml type {}", type),
                             "must be F32 (ggml type 0), as llama.cpp's rotation reads it");
    }
    if (is_long || elements == 0) {
      return InvalidArgument("OUT_OF_RANGE", field, is_long ? "more values" : "no values",
                             fmt::format("must have 1 .. {} values", kMostFactors));
    }
    if (offset % alignment != 0) {
      return InvalidArgument("MALFORMED", field, fmt::format("offset {}", offset),
                             fmt::format("must have an offset that is a multiple of {}", alignment));
    }
    for (const TensorPlace& other : places) {
      if (other.name == name) return InvalidArgument("MALFORMED", field, "given twice", "must be given once");
    }
    places.push_back({std::move(name), elements, offset});
  }
  return places;
}

}  // namespace

std::string NameOf(GgufValueType type) {
  const auto number = static_cast<size_t>(type);
  return number < std::size(kValueTypes) ? std::string(kValueTypes[number]) : fmt::format("type {}", number);
}

absl::StatusOr<Gguf> ReadGguf(const GgufSource& source) {
  Reading file(source);
  POSENC_ASSIGN_OR_RETURN(const Counts counts, ReadCounts(file));
  Gguf gguf;
  gguf.version = counts.version;
  POSENC_RETURN_IF_ERROR(ReadPairs(file, source, counts.pairs, &gguf));
  POSENC_ASSIGN_OR_RETURN(const uint64_t alignment, AlignmentOf(gguf));
  POSENC_ASSIGN_OR_RETURN(const std::vector<TensorPlace> places, ReadTensorPlaces(file, counts.tensors, alignment));
  const uint64_t data = Aligned(file.at(), alignment);
  for (const TensorPlace& place : places) {
    const uint64_t bytes = place.count * sizeof(float);
    if (data > source.size || place.offset > source.size - data || bytes > source.size - data - place.offset) {
      return InvalidArgument(
          "MALFORMED", Path(place.name), fmt::format("{} bytes at offset {} of the data", bytes, place.offset),
          fmt::format("must lie within the file, whose data begin at byte {} of {}", data, source.size));
    }
    POSENC_ASSIGN_OR_RETURN(const std::string stored, source.read(data + place.offset, bytes));
    std::vector<float> values(place.count);
    std::memcpy(values.data(), stored.data(), bytes);
    gguf.factors.push_back({place.name, std::move(values)});
  }
  return gguf;
}

absl::StatusOr<Gguf> ReadGguf(std::string_view bytes) {
  return ReadGguf(GgufSource{bytes.size(), [bytes](uint64_t offset, uint64_t count) -> absl::StatusOr<std::string> {
                               return std::string(bytes.substr(offset, count));
                             }});
}

std::string WriteGguf(const Gguf& gguf) {
  const uint64_t alignment = AlignmentOf(gguf).value_or(kDefaultAlignment);
  std::string bytes(kGgufMagic);
  Append<uint32_t>(gguf.version, &bytes);
  Append<uint64_t>(gguf.factors.size(), &bytes);
  Append<uint64_t>(gguf.pairs.size(), &bytes);
  for (const GgufPair& pair : gguf.pairs) {
    AppendString(pair.key, &bytes);
    Append(pair.type, &bytes);
    bytes += pair.value;
  }
  uint64_t offset = 0;
  for (const GgufFactors& factors : gguf.factors) {
    AppendString(factors.name, &bytes);
    Append<uint32_t>(1, &bytes);
    Append<uint64_t>(factors.values.size(), &bytes);
    Append(kTensorOfFloat32, &bytes);
    Append(offset, &bytes);
    offset = Aligned(offset + factors.values.size() * sizeof(float), alignment);
  }
  for (const GgufFactors& factors : gguf.factors) {
    bytes.resize(Aligned(bytes.size(), alignment));
    bytes.append(reinterpret_cast<const char*>(factors.values.data()), factors.values.size() * sizeof(float));
  }
  return bytes;
}

}  // namespace posenc
