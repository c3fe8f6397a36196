#include "posenc/wire/onnx_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "posenc/base/interruption.h"
#include "posenc/base/status.h"

namespace posenc {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostTableBytes = 128 << 20, kMostKeptBytes = 512 << 20;
constexpr size_t kMostTables = 4096;
constexpr size_t kLongestOnnxMessage = 8192;

struct ElementType {
  int64_t onnx;
  v1::DataType dtype;
  uint64_t size;
};
constexpr ElementType kElementTypes[] = {{kOnnxFloat, v1::DATA_TYPE_FP32, 4},
                                         {kOnnxFloat16, v1::DATA_TYPE_FP16, 2},
                                         {kOnnxBfloat16, v1::DATA_TYPE_BF16, 2},
                                         {kOnnxDouble, v1::DATA_TYPE_FP64, 8}};

std::string TensorPath(const OnnxTensor& tensor) { return fmt::format("{}.{}", kOnnx, Quote(tensor.name)); }

absl::StatusOr<ElementType> TypeOf(const OnnxTensor& tensor) {
  for (const ElementType& type : kElementTypes) {
    if (type.onnx == tensor.data_type) return type;
  }
  return InvalidArgument("UNSUPPORTED", TensorPath(tensor), fmt::format("data type {}", tensor.data_type),
                         "must be FLOAT (1), FLOAT16 (10), DOUBLE (11) or BFLOAT16 (16)");
}

std::string TypeName(int64_t data_type) {
  for (const ElementType& type : kElementTypes) {
    if (type.onnx == data_type) return v1::DataType_Name(type.dtype).substr(std::string_view("DATA_TYPE_").size());
  }
  return fmt::format("data type {}", data_type);
}

// Returns the rows and columns of a table: [rows, width], or one sequence's [1, rows, width].
absl::StatusOr<std::pair<int64_t, int64_t>> TableShape(const OnnxTensor& tensor) {
  const std::vector<int64_t>& dims = tensor.dims;
  const size_t rank = dims.size();
  if (rank < 2 || rank > 3 || (rank == 3 && dims[0] != 1) || dims[rank - 2] < 1 || dims[rank - 1] < 1) {
    return InvalidArgument("UNSUPPORTED", TensorPath(tensor), fmt::format("[{}]", fmt::join(dims, ", ")),
                           "must be [rows, width] or [1, rows, width]");
  }
  return std::pair(dims[rank - 2], dims[rank - 1]);
}

absl::StatusOr<uint64_t> TableBytes(const OnnxTensor& tensor) {
  POSENC_ASSIGN_OR_RETURN(const ElementType type, TypeOf(tensor));
  POSENC_ASSIGN_OR_RETURN(const auto shape, TableShape(tensor));
  const auto rows = static_cast<uint64_t>(shape.first), width = static_cast<uint64_t>(shape.second);
  if (width > kMostTableBytes / type.size / rows) {
    return InvalidArgument("OUT_OF_RANGE", TensorPath(tensor), fmt::format("[{}, {}]", rows, width),
                           fmt::format("must have at most {} bytes", kMostTableBytes));
  }
  return rows * width * type.size;
}

absl::Status WrongSize(const OnnxTensor& tensor, uint64_t size, uint64_t needed) {
  return InvalidArgument("MALFORMED", TensorPath(tensor), fmt::format("{} bytes of data", size),
                         fmt::format("must have the {} bytes of its shape and type", needed));
}

// Decodes int32_data, which holds a FLOAT16 or BFLOAT16 in each varint.
absl::StatusOr<std::string> Halves(const OnnxTensor& tensor, std::string_view varints) {
  std::string bytes;
  uint64_t value = 0;
  int shift = 0;
  for (const char each : varints) {
    value |= shift < 64 ? static_cast<uint64_t>(each & 0x7f) << shift : 0;
    shift += 7;
    if ((each & 0x80) != 0) continue;
    bytes.push_back(static_cast<char>(value));
    bytes.push_back(static_cast<char>(value >> 8));
    value = 0;
    shift = 0;
  }
  if (shift != 0) {
    return InvalidArgument("MALFORMED", TensorPath(tensor) + ".int32_data", "", "must end with a whole varint");
  }
  return bytes;
}

// The files of a graph: its own, and those with its external data.
class OnnxFiles {
 public:
  explicit OnnxFiles(const InputFile& graph) : graph_(graph), folder_(fs::path(graph.path()).parent_path()) {
    if (folder_.empty()) folder_ = ".";
  }

  absl::StatusOr<std::string> Read(const OnnxTensor& tensor) {
    POSENC_ASSIGN_OR_RETURN(const uint64_t needed, TableBytes(tensor));
    return tensor.is_external ? ReadExternal(tensor, needed) : ReadOwn(tensor, needed);
  }

 private:
  absl::StatusOr<std::string> ReadOwn(const OnnxTensor& tensor, uint64_t needed) const {
    const bool is_half = tensor.data_type == kOnnxFloat16 || tensor.data_type == kOnnxBfloat16;
    const std::vector<OnnxRange>& typed = tensor.data_type == kOnnxFloat    ? tensor.float_data
                                          : tensor.data_type == kOnnxDouble ? tensor.double_data
                                                                            : tensor.int32_data;
    const bool is_raw = !tensor.raw_data.empty();
    const std::vector<OnnxRange>& ranges = is_raw ? tensor.raw_data : typed;
    // A varint of int32_data has up to 10 bytes.
    const uint64_t most = is_half && !is_raw ? 5 * needed : needed;
    uint64_t size = 0;
    for (const OnnxRange& range : ranges) size += std::min(range.size, kMostTableBytes);
    if (size > most || (most == needed && size != needed)) return WrongSize(tensor, size, needed);
    std::string bytes;
    for (const OnnxRange& range : ranges) {
      POSENC_ASSIGN_OR_RETURN(const std::string piece, graph_.Read(range.offset, range.size));
      bytes += piece;
    }
    if (!is_half || is_raw) return bytes;
    POSENC_ASSIGN_OR_RETURN(bytes, Halves(tensor, bytes));
    if (bytes.size() != needed) return WrongSize(tensor, bytes.size(), needed);
    return bytes;
  }

  absl::StatusOr<std::string> ReadExternal(const OnnxTensor& tensor, uint64_t needed) {
    const auto number = [&tensor](std::string_view key, const std::string& text,
                                  uint64_t otherwise) -> absl::StatusOr<uint64_t> {
      uint64_t value = otherwise;
      if (text.empty() || absl::SimpleAtoi(text, &value)) return value;
      return InvalidArgument("MALFORMED", fmt::format("{}.external_data.{}", TensorPath(tensor), key), text,
                             "must be a number of bytes");
    };
    POSENC_ASSIGN_OR_RETURN(const uint64_t offset, number("offset", tensor.external_offset, 0));
    POSENC_ASSIGN_OR_RETURN(const uint64_t length, number("length", tensor.external_length, needed));
    if (length != needed) return WrongSize(tensor, length, needed);
    POSENC_ASSIGN_OR_RETURN(const InputFile* file, Open(tensor));
    auto bytes = file->Read(offset, length);
    if (bytes.ok()) return bytes;
    return InvalidArgument("MALFORMED", TensorPath(tensor) + ".external_data", tensor.location,
                           absl::StrCat("must hold the data, but ", bytes.status().message()));
  }

  absl::StatusOr<const InputFile*> Open(const OnnxTensor& tensor) {
    const auto known = opened_.find(tensor.location);
    if (known != opened_.end()) return &known->second;
    if (opened_.size() == kMostFiles) {
      return InvalidArgument("OUT_OF_RANGE", TensorPath(tensor) + ".external_data.location", tensor.location,
                             fmt::format("must be one of at most {} files", kMostFiles));
    }
    POSENC_RETURN_IF_ERROR(CheckLocation(tensor));
    auto file = InputFile::Open((folder_ / tensor.location).string(), kMostTableBytes);
    if (!file.ok()) {
      return InvalidArgument("UNSUPPORTED", TensorPath(tensor) + ".external_data.location", tensor.location,
                             absl::StrCat("must be a file beside the graph: ", file.status().message()));
    }
    return &opened_.emplace(tensor.location, *std::move(file)).first->second;
  }

  // A location is a path below the graph's folder. Links may not leave it, except for links of the Hugging Face cache,
  // whose graph and data lie in one other folder.
  absl::Status CheckLocation(const OnnxTensor& tensor) const {
    const fs::path location(tensor.location);
    const bool climbs = std::find(location.begin(), location.end(), "..") != location.end();
    std::error_code unknown;
    const fs::path real = fs::weakly_canonical(folder_ / location, unknown);
    const auto is_below = [&real](const fs::path& folder) {
      const auto [end, rest] = std::mismatch(folder.begin(), folder.end(), real.begin(), real.end());
      return !folder.empty() && end == folder.end();
    };
    const bool inside = is_below(fs::weakly_canonical(folder_, unknown)) ||
                        is_below(fs::weakly_canonical(graph_.path(), unknown).parent_path());
    if (!location.empty() && location.is_relative() && !climbs && inside) return absl::OkStatus();
    return InvalidArgument("UNSUPPORTED", TensorPath(tensor) + ".external_data.location", tensor.location,
                           "must be the path of a file in the folder of the graph");
  }

  static constexpr size_t kMostFiles = 64;

  const InputFile& graph_;
  fs::path folder_;
  std::map<std::string, InputFile> opened_;
};

// The tables of a graph, each kept once.
class OnnxTables {
 public:
  explicit OnnxTables(const InputFile& graph) : files_(graph) {}

  // Returns the table of the tensor, or of an equal one.
  absl::StatusOr<std::shared_ptr<const v1::Tensor>> Get(const OnnxTensor& tensor) {
    if (const auto known = by_tensor_.find(&tensor); known != by_tensor_.end()) return known->second;
    if (by_tensor_.size() == kMostTables) {
      return InvalidArgument("OUT_OF_RANGE", TensorPath(tensor), "one table more",
                             fmt::format("must be one of at most {} tables", kMostTables));
    }
    InterruptionPoint();
    POSENC_ASSIGN_OR_RETURN(const ElementType type, TypeOf(tensor));
    POSENC_ASSIGN_OR_RETURN(const auto shape, TableShape(tensor));
    v1::Tensor table;
    table.set_dtype(type.dtype);
    table.add_shape(shape.first);
    table.add_shape(shape.second);
    POSENC_ASSIGN_OR_RETURN(*table.mutable_data(), files_.Read(tensor));
    for (const auto& other : different_) {
      if (other->dtype() == table.dtype() && std::ranges::equal(other->shape(), table.shape()) &&
          other->data() == table.data()) {
        return by_tensor_[&tensor] = other;
      }
    }
    kept_bytes_ += table.data().size();
    if (kept_bytes_ > kMostKeptBytes) {
      return InvalidArgument("OUT_OF_RANGE", TensorPath(tensor), fmt::format("{} bytes", table.data().size()),
                             fmt::format("must be at most {} bytes with the other tables", kMostKeptBytes));
    }
    different_.push_back(std::make_shared<const v1::Tensor>(std::move(table)));
    return by_tensor_[&tensor] = different_.back();
  }

 private:
  OnnxFiles files_;
  std::map<const OnnxTensor*, std::shared_ptr<const v1::Tensor>> by_tensor_;
  std::vector<std::shared_ptr<const v1::Tensor>> different_;
  uint64_t kept_bytes_ = 0;
};

std::string NotStored(const OnnxUse& use) {
  const bool cos = use.cos.tensor == nullptr;
  return fmt::format("the table of {} is {}", cos ? "cosines" : "sines", (cos ? use.cos : use.sin).not_stored);
}

absl::StatusOr<v1::RotarySettings> SettingsOf(const OnnxUse& use, const v1::Tensor& cos, const v1::Tensor& sin) {
  if (cos.dtype() != sin.dtype() || !std::ranges::equal(cos.shape(), sin.shape())) {
    return InvalidArgument("MALFORMED", TensorPath(*use.sin.tensor), "", "must have type and shape of the cosines");
  }
  const int64_t width = 2 * cos.shape(1), stated = use.rotation.rotary_embedding_dim;
  if (stated != 0 && stated != width) {
    return InvalidArgument("MALFORMED", fmt::format("{}.graph.node.{}.rotary_embedding_dim", kOnnx, Quote(use.node)),
                           fmt::format("{}", stated),
                           fmt::format("must be {}, twice the width of the table of cosines", width));
  }
  v1::RotarySettings settings;
  settings.set_input_pairing(use.rotation.interleaved ? v1::PAIRING_INTERLEAVED : v1::PAIRING_HALF_SPLIT);
  settings.mutable_given_table()->set_form(v1::TABLE_FORM_HALF_WIDTH);
  *settings.mutable_given_table()->mutable_cos() = cos;
  *settings.mutable_given_table()->mutable_sin() = sin;
  return settings;
}

absl::StatusOr<OnnxFile> Collect(const OnnxModel& model, const InputFile& file) {
  POSENC_ASSIGN_OR_RETURN(const OnnxUses found, FindRotary(model));
  OnnxFile result;
  result.producer = model.producer;
  for (const auto& [name, count] : found.unread) {
    result.unread.push_back(fmt::format("{} {}, {} node{}", name.first, name.second, count, count == 1 ? "" : "s"));
  }
  OnnxTables tables(file);
  // Alike: equal rotations by the same tables.
  std::map<std::tuple<OnnxRotation, const v1::Tensor*, const v1::Tensor*, int64_t, std::string>, size_t> index_of;
  for (const OnnxUse& use : found.uses) {
    std::shared_ptr<const v1::Tensor> cos, sin;
    std::string not_stored;
    if (use.cos.tensor == nullptr || use.sin.tensor == nullptr) {
      not_stored = NotStored(use);
    } else {
      POSENC_ASSIGN_OR_RETURN(cos, tables.Get(*use.cos.tensor));
      POSENC_ASSIGN_OR_RETURN(sin, tables.Get(*use.sin.tensor));
    }
    const auto [known, is_new] =
        index_of.try_emplace({use.rotation, cos.get(), sin.get(), use.cos.cast_to, not_stored}, result.rotary.size());
    if (is_new) {
      OnnxRotary& rotary = result.rotary.emplace_back();
      rotary.rotation = use.rotation;
      rotary.not_stored = not_stored;
      if (cos != nullptr) {
        POSENC_ASSIGN_OR_RETURN(rotary.settings, SettingsOf(use, *cos, *sin));
        rotary.cos_name = use.cos.tensor->name;
        rotary.sin_name = use.sin.tensor->name;
        rotary.stored = use.cos.tensor->is_external ? "in " + use.cos.tensor->location : "in the graph";
        if (use.cos.cast_to != 0) rotary.stored += ", cast to " + TypeName(use.cos.cast_to);
      }
    }
    result.rotary[known->second].nodes.push_back(use.node);
  }
  return result;
}

absl::StatusOr<OnnxFile> ReadUnnamed(const std::string& path) {
  POSENC_ASSIGN_OR_RETURN(const InputFile file, InputFile::Open(path, kMostTableBytes));
  POSENC_ASSIGN_OR_RETURN(
      const OnnxModel model,
      ReadOnnx(OnnxSource{file.size(), [&file](uint64_t offset, uint64_t count) { return file.Read(offset, count); }}));
  return Collect(model, file);
}

}  // namespace

bool IsOnnxPath(const std::string& path) { return absl::EndsWith(path, ".onnx"); }

absl::StatusOr<OnnxFile> ReadOnnxFile(const std::string& path) {
  auto file = ReadUnnamed(path);
  if (file.ok()) return file;
  const std::string message = Quote(absl::StrCat(path, ": ", file.status().message()), kLongestOnnxMessage);
  const ErrorDetails details = DetailsOf(file.status());
  return details.field.empty() ? absl::Status(file.status().code(), message)
                               : Restore(file.status().code(), message, details);
}

}  // namespace posenc
