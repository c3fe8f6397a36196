#include "tools/posenc/tiles.h"

#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "tools/posenc/report.h"

namespace posenc::command {

absl::Status TiledTensor::Check(int64_t row_begin, const v1::Tensor& tile) {
  TensorHeader whole = HeaderOf(header_.name, tile);
  const std::string is = absl::StrCat("a tile of ", whole.name, " is ", TensorReport(whole), " from row ", row_begin);
  if (whole.shape.size() < 2) return absl::InternalError(is + "; it has no rows");
  int64_t& rows = whole.shape[whole.shape.size() - 2];
  if (row_begin != written_ || rows > rows_ - written_ || (rows == 0 && rows_ > 0)) {
    return absl::InternalError(absl::StrCat(is, "; rows ", written_, " to ", rows_, " are missing"));
  }
  rows = rows_;
  if (header_.shape.empty()) header_.shape = whole.shape;
  if (whole.dtype != header_.dtype || whole.shape != header_.shape) {
    return absl::InternalError(absl::StrCat(is, ", but the whole is ", TensorReport(header_)));
  }
  return absl::OkStatus();
}

absl::Status TiledTensor::Write(const v1::Tensor& tile, size_t index, TensorWriter* writer) {
  const std::string_view data = tile.data();
  const auto rows = tile.shape(tile.shape_size() - 2);
  const uint64_t row_bytes = ElementSize(header_.dtype) * static_cast<uint64_t>(header_.shape.back());
  const uint64_t part = static_cast<uint64_t>(rows) * row_bytes;
  for (uint64_t matrix = 0; matrix * part < data.size(); ++matrix) {
    const uint64_t row = matrix * static_cast<uint64_t>(rows_) + static_cast<uint64_t>(written_);
    POSENC_RETURN_IF_ERROR(writer->Write(index, row * row_bytes, data.substr(matrix * part, part)));
  }
  written_ += rows;
  return absl::OkStatus();
}

absl::Status TiledTensor::CheckComplete() const {
  if (!header_.shape.empty() && written_ == rows_) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(header_.name, " has ", written_, " rows, ", rows_, " were requested"));
}

}  // namespace posenc::command
