// .safetensors files (https://github.com/huggingface/safetensors#format): the header's length N as 8 little-endian
// bytes, N bytes of JSON {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ...}, then the data,
// which the tensors cover without gap or overlap.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/files/file_io.h"
#include "tools/files/tensor_header.h"

namespace posenc {

// All tensors of the file, by where their data begin. Types that the service has not are let pass:
// DATA_TYPE_UNSPECIFIED and no shape. INVALID_ARGUMENT says what is wrong, without the file's name.
absl::StatusOr<std::vector<StoredTensor>> ReadSafetensorsHeader(const InputFile& file);

// What comes before the data, which must follow in this order. Names are distinct and ASCII. The metadata become
// "__metadata__".
absl::StatusOr<std::string> MakeSafetensorsHeader(const std::vector<TensorHeader>& tensors,
                                                  const std::map<std::string, std::string>& metadata = {});

}  // namespace posenc
