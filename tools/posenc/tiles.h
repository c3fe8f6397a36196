// Tensors that a server streams in tiles of rows.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "posenc/v1/tensor.pb.h"
#include "tools/files/tensor_file.h"
#include "tools/files/tensor_header.h"

namespace posenc::command {

// A tensor [..., rows, width] in a file. Each tile has all of the tensor but for the rows, of which it has the next
// ones.
class TiledTensor {
 public:
  TiledTensor(std::string name, v1::DataType dtype, int64_t rows) : header_{std::move(name), dtype, {}}, rows_(rows) {}

  // Returns INTERNAL unless the tile is of the tensor's type, has the shape of the first tile but for the number of
  // rows, and begins where the one before it ended.
  absl::Status Check(int64_t row_begin, const v1::Tensor& tile);
  // The whole tensor, known after the first Check().
  const TensorHeader& header() const { return header_; }

  // Writes a tile for which Check() returned OK to tensor `index` of the file.
  absl::Status Write(const v1::Tensor& tile, size_t index, TensorWriter* writer);
  int64_t written() const { return written_; }
  // Returns INTERNAL if rows are missing.
  absl::Status CheckComplete() const;

 private:
  TensorHeader header_;
  const int64_t rows_;
  int64_t written_ = 0;
};

}  // namespace posenc::command
