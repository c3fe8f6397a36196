#include "tools/files/safetensors.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "posenc/base/json_text.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

using nlohmann::json;

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMostOfHeader = 16 << 20;  // bytes; about 100,000 tensors

struct SafetensorsType {
  v1::DataType dtype;
  std::string_view name;
};
constexpr SafetensorsType kSafetensorsTypes[] = {{v1::DATA_TYPE_FP32, "F32"},  {v1::DATA_TYPE_FP16, "F16"},
                                                 {v1::DATA_TYPE_BF16, "BF16"}, {v1::DATA_TYPE_FP64, "F64"},
                                                 {v1::DATA_TYPE_INT32, "I32"}, {v1::DATA_TYPE_INT64, "I64"},
                                                 {v1::DATA_TYPE_BOOL, "BOOL"}};

// Returns an array of non-negative integers; nullopt if it is no array or has another element.
std::optional<std::vector<int64_t>> Integers(const json& object, std::string_view key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return std::nullopt;
  std::vector<int64_t> values;
  for (const json& element : *found) {
    if (!element.is_number_unsigned() || element.get<uint64_t>() > INT64_MAX) return std::nullopt;
    values.push_back(element.get<int64_t>());
  }
  return values;
}

absl::StatusOr<StoredTensor> ParseTensor(const std::string& name, const json& entry) {
  const auto wrong = [&name](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat("has a malformed header: tensor \"", Quote(name), "\": ", what));
  };
  if (!entry.is_object()) return wrong("is not an object");
  const auto type = entry.find("dtype");
  const auto shape = Integers(entry, "shape"), offsets = Integers(entry, "data_offsets");
  if (type == entry.end() || !type->is_string()) return wrong("has no dtype");
  if (!shape) return wrong("shape is not a list of non-negative integers");
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return wrong("data_offsets are not [begin, end] with 0 <= begin <= end");
  }
  StoredTensor stored{.header = {.name = name, .dtype = v1::DATA_TYPE_UNSPECIFIED, .shape = {}},
                      .type_name = type->get<std::string>(),
                      .begin = static_cast<uint64_t>((*offsets)[0]),
                      .size = static_cast<uint64_t>((*offsets)[1] - (*offsets)[0])};
  for (const SafetensorsType& known : kSafetensorsTypes) {
    if (stored.type_name == known.name) stored.header.dtype = known.dtype;
  }
  if (stored.header.dtype == v1::DATA_TYPE_UNSPECIFIED) return stored;
  stored.header.shape = *shape;
  const absl::StatusOr<uint64_t> expected = ByteSize(stored.header);
  if (!expected.ok()) return wrong(std::string(expected.status().message()));
  if (stored.size != *expected) {
    return wrong(absl::StrCat("data_offsets span ", stored.size, " bytes, but type and shape need ", *expected));
  }
  return stored;
}

}  // namespace

absl::StatusOr<std::vector<StoredTensor>> ReadSafetensorsHeader(const InputFile& file) {
  if (file.size() < kLengthBytes) return absl::InvalidArgumentError("is not a .safetensors file: too short");
  POSENC_ASSIGN_OR_RETURN(const std::string prefix, file.Read(0, kLengthBytes));
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(prefix[i]);
  if (length > kMostOfHeader) {
    return absl::InvalidArgumentError(
        absl::StrCat("has a header of ", length, " bytes; at most ", kMostOfHeader, " are allowed"));
  }
  if (length > file.size() - kLengthBytes) return absl::InvalidArgumentError("is truncated within its header");
  POSENC_ASSIGN_OR_RETURN(const std::string text, file.Read(kLengthBytes, length));
  json header;
  if (const absl::Status status = ParseJson(text, "header", &header); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("has a malformed header: ", status.message()));
  }
  if (!header.is_object()) return absl::InvalidArgumentError("has a header that is not a JSON object");

  std::vector<StoredTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    POSENC_ASSIGN_OR_RETURN(StoredTensor tensor, ParseTensor(name, entry));
    tensors.push_back(std::move(tensor));
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.size) < std::pair(b.begin, b.size);
  });
  uint64_t covered = 0;
  for (StoredTensor& tensor : tensors) {
    if (tensor.begin != covered) {
      return absl::InvalidArgumentError(absl::StrCat("has a gap or an overlap before tensor \"",
                                                     Quote(tensor.header.name), "\": begins at ", tensor.begin,
                                                     ", but the tensors before it end at ", covered));
    }
    covered += tensor.size;  // cannot overflow: begin + size is a data_offset
    tensor.begin += kLengthBytes + length;
  }
  const uint64_t present = file.size() - kLengthBytes - length;
  if (covered != present) {
    return absl::InvalidArgumentError(absl::StrCat(covered > present ? "is truncated: has " : "has ", present,
                                                   " bytes of data, but its header says ", covered));
  }
  return tensors;
}

absl::StatusOr<std::string> MakeSafetensorsHeader(const std::vector<TensorHeader>& tensors,
                                                  const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorHeader& tensor : tensors) {
    const auto* type = std::find_if(std::begin(kSafetensorsTypes), std::end(kSafetensorsTypes),
                                    [&tensor](const SafetensorsType& known) { return known.dtype == tensor.dtype; });
    if (type == std::end(kSafetensorsTypes))
      return absl::InvalidArgumentError("a tensor without a type cannot be stored");
    POSENC_ASSIGN_OR_RETURN(const uint64_t size, ByteSize(tensor));
    header[tensor.name] = {{"dtype", type->name}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + size}}};
    offset += size;
  }
  std::string text = header.dump();
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');  // aligns the data
  std::string bytes;
  for (size_t i = 0; i < kLengthBytes; ++i) bytes += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return bytes + text;
}

}  // namespace posenc
