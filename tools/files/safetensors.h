// The .safetensors format (https://github.com/huggingface/safetensors#format): the header's length N as 8 little-endian
// bytes, N bytes of JSON {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ...}, then the data,
// which the tensors cover without gap or overlap.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/base/input_file.h"
#include "tools/files/tensor_header.h"

namespace posenc {

// Returns all tensors of the file, ordered by the offset of their data. A type that the service does not support gives
// DATA_TYPE_UNSPECIFIED and no shape. Returns INVALID_ARGUMENT without the file's name if the file is invalid.
absl::StatusOr<std::vector<StoredTensor>> ReadSafetensorsHeader(const InputFile& file);

// Returns the bytes before the data, which must follow in the order of `tensors`. Names must be distinct and ASCII.
// `metadata` is stored as "__metadata__".
absl::StatusOr<std::string> MakeSafetensorsHeader(const std::vector<TensorHeader>& tensors,
                                                  const std::map<std::string, std::string>& metadata = {});

}  // namespace posenc
