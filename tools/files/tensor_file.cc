#include "tools/files/tensor_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "posenc/base/input_file.h"
#include "posenc/base/status.h"
#include "tools/files/npy.h"
#include "tools/files/safetensors.h"

namespace posenc {
namespace {

constexpr std::string_view kNpy = ".npy";
constexpr std::string_view kSafetensors = ".safetensors";

absl::Status WrongSuffix(const std::string& path) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": its name must end in .npy or .safetensors"));
}

// Begins the message with the file's name.
absl::Status In(const std::string& path, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

struct Source {
  std::string path;
  std::string name;  // empty: the file's only tensor
};

// Splits at the colon after the suffix, because a path may contain colons.
Source Split(std::string_view source) {
  const size_t at = source.rfind(".safetensors:");
  if (at == std::string_view::npos && !source.starts_with("-:")) return {std::string(source), ""};
  const size_t colon = at == std::string_view::npos ? 1 : at + kSafetensors.size();
  return {std::string(source.substr(0, colon)), std::string(source.substr(colon + 1))};
}

bool HasNpyMagic(const InputFile& file) {
  const auto start = file.Read(0, std::min<uint64_t>(file.size(), 6));
  return start.ok() && *start == "\x93NUMPY";
}

// True if these tensors are written in NumPy's format.
bool IsNpy(const std::string& path, v1::DataType dtype, size_t count) {
  return path.ends_with(kNpy) || (!path.ends_with(kSafetensors) && count == 1 && dtype != v1::DATA_TYPE_BF16);
}

absl::StatusOr<StoredTensor> Locate(const InputFile& file, const std::string& name) {
  if (file.path().ends_with(kNpy) || (!file.path().ends_with(kSafetensors) && HasNpyMagic(file))) {
    return ReadNpyHeader(file);
  }
  POSENC_ASSIGN_OR_RETURN(const std::vector<StoredTensor> tensors, ReadSafetensorsHeader(file));
  for (const StoredTensor& tensor : tensors) {
    if (name.empty() ? tensors.size() == 1 : tensor.header.name == name) return tensor;
  }
  const std::string choices = Quote(
      absl::StrJoin(tensors, ", ",
                    [](std::string* out, const StoredTensor& tensor) { absl::StrAppend(out, tensor.header.name); }),
      512);
  if (!name.empty()) return absl::NotFoundError(absl::StrCat("has no tensor \"", Quote(name), "\"; it has: ", choices));
  return absl::InvalidArgumentError(
      absl::StrCat("has ", tensors.size(), " tensors; append \":NAME\" to choose one of: ", choices));
}

absl::StatusOr<InputFile> Open(const std::string& path) {
  std::error_code unknown;
  const bool named = path.ends_with(kNpy) || path.ends_with(kSafetensors);
  if (!named && !IsStream(path) && !std::filesystem::is_directory(path, unknown)) return WrongSuffix(path);
  // A third leaves memory for a copy and for an answer.
  auto file = InputFile::Open(path, FreeMemory() / 3, Streams::kRead);
  if (!file.ok()) return In(path == "-" ? "standard input" : path, file.status());
  return file;
}

// `name`: empty for the file's only tensor.
absl::StatusOr<v1::Tensor> Read(const InputFile& file, const std::string& name) {
  const absl::StatusOr<StoredTensor> stored = Locate(file, name);
  if (!stored.ok()) return In(file.path(), stored.status());
  if (stored->header.dtype == v1::DATA_TYPE_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor \"", Quote(stored->header.name),
                                                   "\" has elements of type ", Quote(stored->type_name),
                                                   ", not one of F64, F32, F16, BF16, I64, I32, BOOL"));
  }
  v1::Tensor tensor;
  tensor.set_dtype(stored->header.dtype);
  tensor.mutable_shape()->Add(stored->header.shape.begin(), stored->header.shape.end());
  auto data = file.Read(stored->begin, stored->size);
  if (!data.ok()) return In(file.path(), data.status());
  *tensor.mutable_data() = *std::move(data);
  return tensor;
}

}  // namespace

absl::StatusOr<v1::Tensor> ReadTensor(std::string_view source) {
  const auto [path, name] = Split(source);
  POSENC_ASSIGN_OR_RETURN(const InputFile file, Open(path));
  return Read(file, name);
}

absl::StatusOr<std::vector<v1::Tensor>> ReadTensors(const std::string& path, const std::vector<std::string>& names) {
  POSENC_ASSIGN_OR_RETURN(const InputFile file, Open(path));
  std::vector<v1::Tensor> tensors;
  for (const std::string& name : names) {
    POSENC_ASSIGN_OR_RETURN(tensors.emplace_back(), Read(file, name));
  }
  return tensors;
}

absl::Status CheckWritable(const std::string& path, v1::DataType dtype, size_t count) {
  if (IsStream(path)) return absl::OkStatus();
  if (!path.ends_with(kSafetensors) && !path.ends_with(kNpy)) return WrongSuffix(path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code unknown;
  if (!folder.empty() && !std::filesystem::is_directory(folder, unknown)) {
    return absl::NotFoundError(absl::StrCat(path, ": there is no folder ", folder.string()));
  }
  if (access(folder.empty() ? "." : folder.c_str(), W_OK) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot write to its folder"));
  }
  if (path.ends_with(kSafetensors)) return absl::OkStatus();
  if (count != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a .npy file holds one tensor, not ", count, "; use .safetensors"));
  }
  if (dtype == v1::DATA_TYPE_UNSPECIFIED) return absl::OkStatus();
  return In(path, MakeNpyHeader({.name = "", .dtype = dtype, .shape = {}}).status());
}

absl::StatusOr<TensorWriter> TensorWriter::Create(const std::string& path, const std::vector<TensorHeader>& tensors,
                                                  const std::map<std::string, std::string>& metadata) {
  for (const TensorHeader& tensor : tensors) POSENC_RETURN_IF_ERROR(CheckWritable(path, tensor.dtype, tensors.size()));
  const absl::StatusOr<std::string> header = IsNpy(path, tensors.front().dtype, tensors.size())
                                                 ? MakeNpyHeader(tensors.front())
                                                 : MakeSafetensorsHeader(tensors, metadata);
  if (!header.ok()) return In(path, header.status());
  std::vector<uint64_t> begins;
  uint64_t end = header->size();
  for (const TensorHeader& tensor : tensors) {
    begins.push_back(end);
    POSENC_ASSIGN_OR_RETURN(const uint64_t size, ByteSize(tensor));
    end += size;
  }
  POSENC_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  POSENC_RETURN_IF_ERROR(file.Write(0, *header));
  return TensorWriter(std::move(file), std::move(begins));
}

absl::Status TensorWriter::Write(size_t index, uint64_t offset, std::string_view bytes) {
  return file_.Write(begins_[index] + offset, bytes);
}

absl::Status WriteTensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                          const std::map<std::string, std::string>& metadata) {
  std::vector<TensorHeader> headers;
  for (const auto& [name, tensor] : tensors) headers.push_back(HeaderOf(name, *tensor));
  POSENC_ASSIGN_OR_RETURN(TensorWriter writer, TensorWriter::Create(path, headers, metadata));
  for (size_t i = 0; i < tensors.size(); ++i) POSENC_RETURN_IF_ERROR(writer.Write(i, 0, tensors[i].tensor->data()));
  return writer.Commit();
}

}  // namespace posenc
