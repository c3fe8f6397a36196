#include "tools/files/npy.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr uint64_t kMaxHeader = 64 << 10;  // bytes; NumPy's own readers accept less
constexpr size_t kAlignment = 64;

struct NpyType {
  v1::DataType dtype;
  const char* descr;  // a Python literal
};
constexpr NpyType kNpyTypes[] = {{v1::DATA_TYPE_FP32, "'<f4'"},  {v1::DATA_TYPE_FP16, "'<f2'"},
                                 {v1::DATA_TYPE_FP64, "'<f8'"},  {v1::DATA_TYPE_INT32, "'<i4'"},
                                 {v1::DATA_TYPE_INT64, "'<i8'"}, {v1::DATA_TYPE_BOOL, "'|b1'"}};

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

struct Entry {
  std::string_view key, value;  // Python literals
};

// Returns the entries of "{KEY: VALUE, ...}", which end at the commas outside brackets; nullopt if it is no such text.
std::optional<std::vector<Entry>> EntriesOf(std::string_view dict) {
  dict = Trim(dict);
  if (dict.size() < 2 || dict.front() != '{' || dict.back() != '}') return std::nullopt;
  std::string_view rest = Trim(dict.substr(1, dict.size() - 2));
  std::vector<Entry> entries;
  while (!rest.empty()) {
    const size_t colon = rest.find(':');
    if (colon == std::string_view::npos) return std::nullopt;
    size_t end = colon + 1;
    for (int depth = 0; end < rest.size() && (depth > 0 || rest[end] != ','); ++end) {
      depth += (rest[end] == '(' || rest[end] == '[') - (rest[end] == ')' || rest[end] == ']');
    }
    entries.push_back({Trim(rest.substr(0, colon)), Trim(rest.substr(colon + 1, end - colon - 1))});
    rest = Trim(rest.substr(std::min(end + 1, rest.size())));
  }
  return entries;
}

absl::StatusOr<v1::DataType> ParseType(std::string_view descr) {
  for (const NpyType& type : kNpyTypes) {
    if (descr == type.descr) return type.dtype;
  }
  if (descr.starts_with("'>")) {
    return absl::InvalidArgumentError(absl::StrCat("is big-endian (", Quote(descr),
                                                   "); convert it with array.astype(array.dtype.newbyteorder('<'))"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("has elements of type ", Quote(descr), ", not one of f2, f4, f8, i4, i8, b1"));
}

// Parses "()", "(3,)", "(3, 4)".
absl::StatusOr<std::vector<int64_t>> ParseShape(std::string_view text) {
  const absl::Status malformed =
      absl::InvalidArgumentError(absl::StrCat("has a malformed header: shape ", Quote(text)));
  if (text.size() < 2 || text.front() != '(' || text.back() != ')') return malformed;
  std::vector<int64_t> shape;
  std::string_view rest = Trim(text.substr(1, text.size() - 2));
  while (!rest.empty()) {
    int64_t dimension = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), dimension);
    if (error != std::errc()) return malformed;
    shape.push_back(dimension);
    rest = Trim(rest.substr(static_cast<size_t>(end - rest.data())));
    if (!rest.empty() && rest.front() != ',') return malformed;
    if (!rest.empty()) rest = Trim(rest.substr(1));
  }
  return shape;
}

}  // namespace

absl::StatusOr<StoredTensor> ReadNpyHeader(const InputFile& file) {
  POSENC_ASSIGN_OR_RETURN(const std::string start, file.Read(0, std::min<uint64_t>(file.size(), 12)));
  if (start.size() < 10 || start.substr(0, 6) != kMagic) return absl::InvalidArgumentError("is not a .npy file");
  const auto byte = [&start](size_t at) { return static_cast<uint64_t>(static_cast<unsigned char>(start[at])); };
  const uint64_t version = byte(6);
  if ((version != 1 && version != 2) || byte(7) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("has format version ", byte(6), ".", byte(7), "; only 1.0 and 2.0 are supported"));
  }
  if (version == 2 && start.size() < 12) return absl::InvalidArgumentError("is truncated within its header");
  const uint64_t prefix = version == 1 ? 10 : 12;
  uint64_t length = byte(8) | byte(9) << 8;
  if (version == 2) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kMaxHeader) {
    return absl::InvalidArgumentError(
        absl::StrCat("has a header of ", length, " bytes; at most ", kMaxHeader, " are allowed"));
  }
  if (length > file.size() - prefix) return absl::InvalidArgumentError("is truncated within its header");
  POSENC_ASSIGN_OR_RETURN(const std::string text, file.Read(prefix, length));

  // NumPy requires these keys and no other. Of a key that is given twice, Python takes the last value.
  const auto entries = EntriesOf(text);
  std::map<std::string_view, std::string_view> values;
  for (const Entry& entry : entries.value_or(std::vector<Entry>())) {
    if (values.emplace(entry.key, entry.value).second) continue;
    return absl::InvalidArgumentError(absl::StrCat("has a malformed header: ", Quote(entry.key), " is given twice"));
  }
  if (values.size() != 3 || !values.contains("'descr'") || !values.contains("'fortran_order'") ||
      !values.contains("'shape'")) {
    return absl::InvalidArgumentError(absl::StrCat("has a malformed header: ", Quote(text)));
  }
  const std::string_view descr = values["'descr'"];
  StoredTensor stored{
      .header = {}, .type_name = std::string(descr), .begin = prefix + length, .size = file.size() - prefix - length};
  POSENC_ASSIGN_OR_RETURN(stored.header.dtype, ParseType(descr));
  if (values["'fortran_order'"] != "False") {
    return absl::InvalidArgumentError("is in Fortran order; save numpy.ascontiguousarray(array) instead");
  }
  POSENC_ASSIGN_OR_RETURN(stored.header.shape, ParseShape(values["'shape'"]));
  POSENC_ASSIGN_OR_RETURN(const uint64_t expected, ByteSize(stored.header));
  if (stored.size != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", stored.size, " bytes of data, but its header says ", expected));
  }
  return stored;
}

absl::StatusOr<std::string> MakeNpyHeader(const TensorHeader& header) {
  const auto* type = std::find_if(std::begin(kNpyTypes), std::end(kNpyTypes),
                                  [&header](const NpyType& candidate) { return candidate.dtype == header.dtype; });
  if (type == std::end(kNpyTypes)) {
    return absl::InvalidArgumentError("NumPy's format has no BF16; give the file a name that ends in .safetensors");
  }
  std::string dict = absl::StrCat("{'descr': ", type->descr, ", 'fortran_order': False, 'shape': (",
                                  absl::StrJoin(header.shape, ", "), header.shape.size() == 1 ? "," : "", "), }");
  constexpr size_t kPrefix = 10;
  const size_t unpadded = kPrefix + dict.size() + 1;
  dict.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  dict += '\n';
  std::string bytes(kMagic);
  bytes += '\x01';
  bytes += '\0';
  bytes += static_cast<char>(dict.size() & 0xff);
  bytes += static_cast<char>(dict.size() >> 8);
  return bytes + dict;
}

}  // namespace posenc
