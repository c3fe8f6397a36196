// Metadata of a tensor in a file. Elements are little-endian and row-major, as in v1::Tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc {

struct TensorHeader {
  std::string name;  // empty if the format has no names
  v1::DataType dtype;
  std::vector<int64_t> shape;
};

TensorHeader HeaderOf(const std::string& name, const v1::Tensor& tensor);

// A tensor in a file.
struct StoredTensor {
  TensorHeader header;    // dtype is DATA_TYPE_UNSPECIFIED if the service does not support the type
  std::string type_name;  // type name in the file
  uint64_t begin;         // offset of the data in the file, bytes
  uint64_t size;          // bytes of data
};

// Returns the bytes of one element; 0 for DATA_TYPE_UNSPECIFIED.
uint64_t ElementSize(v1::DataType dtype);

// Returns the bytes of the whole tensor, or INVALID_ARGUMENT if a dimension is negative or the size exceeds 63 bits.
absl::StatusOr<uint64_t> ByteSize(const TensorHeader& header);

}  // namespace posenc
