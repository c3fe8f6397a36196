// What a file says about a tensor before its bytes. Elements are little-endian and row-major, as in v1::Tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "posenc/v1/tensor.pb.h"

namespace posenc {

struct TensorHeader {
  std::string name;  // empty where the format has no names
  v1::DataType dtype;
  std::vector<int64_t> shape;
};

// A tensor in a file.
struct StoredTensor {
  TensorHeader header;    // dtype is DATA_TYPE_UNSPECIFIED where the service has no such type
  std::string type_name;  // the file's name of the type
  uint64_t begin;         // byte of the file at which the data begins
  uint64_t size;          // bytes of data
};

// Bytes of one element; 0 for DATA_TYPE_UNSPECIFIED.
uint64_t ElementSize(v1::DataType dtype);

// Bytes of the whole tensor. INVALID_ARGUMENT for a negative dimension or a size beyond 63 bits.
absl::StatusOr<uint64_t> ByteSize(const TensorHeader& header);

}  // namespace posenc
