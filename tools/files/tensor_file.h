// Tensor files: .npy and .safetensors, distinguished by the file name's suffix; "-" and other streams get .npy for one
// tensor of a type that NumPy has, else .safetensors. Errors name the file and the remedy.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/v1/tensor.pb.h"
#include "tools/files/file_io.h"
#include "tools/files/tensor_header.h"

namespace posenc {

// Reads a tensor from "FILE.npy", "FILE.safetensors" (which must hold one tensor) or "FILE.safetensors:NAME". "-",
// "-:NAME" and pipes hold either format.
absl::StatusOr<v1::Tensor> ReadTensor(std::string_view source);

// Reads the tensors of these names from a .safetensors file or a stream, which is read once.
absl::StatusOr<std::vector<v1::Tensor>> ReadTensors(const std::string& path, const std::vector<std::string>& names);

// Writes tensors of known type and shape; their bytes may arrive in any order, so that a tensor larger than memory can
// be written in parts. The file appears with Commit(). Without Commit() an existing file is unchanged.
class TensorWriter {
 public:
  // The names in `tensors` must be distinct. A .npy file holds one tensor, of any type except BF16. Only .safetensors
  // stores metadata.
  static absl::StatusOr<TensorWriter> Create(const std::string& path, const std::vector<TensorHeader>& tensors,
                                             const std::map<std::string, std::string>& metadata = {});

  // `offset` is in bytes, from the start of the data of tensors[index].
  absl::Status Write(size_t index, uint64_t offset, std::string_view bytes);
  absl::Status Commit() { return file_.Commit(); }

 private:
  TensorWriter(OutputFile file, std::vector<uint64_t> begins) : file_(std::move(file)), begins_(std::move(begins)) {}

  OutputFile file_;
  std::vector<uint64_t> begins_;
};

struct NamedTensor {
  std::string name;
  const v1::Tensor* tensor;
};
absl::Status WriteTensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                          const std::map<std::string, std::string>& metadata = {});

// Returns the error that Create() would return for `count` tensors of this type (DATA_TYPE_UNSPECIFIED: type not known
// yet). Call it before computing the tensors.
absl::Status CheckWritable(const std::string& path, v1::DataType dtype, size_t count);

}  // namespace posenc
