// Tensors in files: .npy and .safetensors, told apart by the file's name. Errors name the file and what to do.
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

// "FILE.npy", "FILE.safetensors" (which must hold one tensor) or "FILE.safetensors:NAME".
absl::StatusOr<v1::Tensor> ReadTensor(std::string_view source);

// Writes tensors of known type and shape in any order of bytes, so that one larger than memory can be stored as it
// comes. The file appears with Commit(); until then, and without it, what was there remains.
class TensorWriter {
 public:
  // `tensors` are distinct in name; a .npy file takes one, of any type but BF16.
  // Only .safetensors has metadata.
  static absl::StatusOr<TensorWriter> Create(const std::string& path, const std::vector<TensorHeader>& tensors,
                                             const std::map<std::string, std::string>& metadata = {});

  // `offset` is within the data of tensors[index].
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

// Whether Create() would take so many tensors of this type (of any, where it is not known); to be asked before the work
// is done.
absl::Status CheckWritable(const std::string& path, v1::DataType dtype, size_t count);

}  // namespace posenc
